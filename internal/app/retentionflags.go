package app

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// Retention is how long dead letters are kept, and where they are archived.
type Retention struct {
	Archive string // directory; empty: dead letters of settlements are kept for ever
	Rules   []string
}

// BindRetention defines --retain and --archive.
func (o *Options) BindRetention(f *pflag.FlagSet) {
	f.StringVar(&o.Retention.Archive, "archive", "", "directory that expired and purged dead letters are written to; without it dead letters of settlements never expire")
	f.StringArrayVar(&o.Retention.Rules, "retain", nil, "how long dead letters are kept: FAMILY[:QUEUE]=AGE[/COUNT][/archive or /delete], such as settlement=P180D, chores:0=P30D/10000 (the queue chores:0) or ojs:mail=P7D/delete (the queue mail of jobs, of which --archive gets no copy); repeatable (default "+retention.DefaultMaxAge+")")
}

// BindArchive defines --archive for commands that remove dead letters.
func (o *Options) BindArchive(f *pflag.FlagSet) {
	f.StringVar(&o.Retention.Archive, "archive", "", "directory that removed dead letters are written to; use the --archive of recourse serve")
}

// rules parses the flags. The service checks whether the families exist.
func (r *Retention) rules() (out []retention.Rule, err error) {
	for _, text := range r.Rules {
		rule, err := retentionRule(text)
		if err != nil {
			return nil, optionError("--retain %q: %v", text, err)
		}
		out = append(out, rule)
	}
	return out, nil
}

func retentionRule(text string) (rule retention.Rule, err error) {
	where, keep, found := strings.Cut(text, "=")
	if !found || where == "" || keep == "" {
		return rule, fmt.Errorf("it must look like settlement=P180D")
	}
	var queue string
	if rule.Family, queue, found = strings.Cut(where, ":"); found {
		if rule.Queue = where; rule.Family == jobs.Family { // the queues of the others begin with the family
			rule.Queue = queue
		}
		if queue == "" {
			return rule, fmt.Errorf("the queue after %q is missing", where)
		}
	}
	parts := strings.Split(keep, "/")
	rule.MaxAge, parts = parts[0], parts[1:]
	if last := len(parts) - 1; last >= 0 && (parts[last] == string(retention.Delete) || parts[last] == string(retention.ToArchive)) {
		rule.Pruning, parts = retention.Pruning(parts[last]), parts[:last]
	}
	if len(parts) == 0 {
		return rule, rule.Validate()
	}
	count := strings.Join(parts, "/")
	if rule.MaxCount, err = strconv.Atoi(count); err != nil || rule.MaxCount < 1 {
		return rule, fmt.Errorf("%q is not a number of letters", count)
	}
	return rule, rule.Validate()
}

// apply sets the retention and the archive of a configuration. Its errors are ErrOptions.
func (r *Retention) apply(c *postadjudication.Config) (err error) {
	if c.Retention, err = r.rules(); err != nil || r.Archive == "" {
		return err
	}
	if c.Archive, err = retention.OpenDir(r.Archive); err != nil {
		return optionError("--archive: %v", err)
	}
	return nil
}
