package app

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication"
)

// Retention is how long letters are kept, and where they go then.
type Retention struct {
	Archive string // directory; empty: letters of settlements are kept for ever
	Rules   []string
}

// bind defines the flags.
func (r *Retention) bind(f *pflag.FlagSet) {
	f.StringVar(&r.Archive, "archive", "", "directory that dead letters go into when their retention is over or they are purged; without one those of settlements are never pruned")
	f.StringArrayVar(&r.Rules, "retain", nil, "how long dead letters are kept, as FAMILY[:SHARD]=AGE[/COUNT], such as settlement=P180D or chores:0=P30D/10000; may be repeated (default "+postadjudication.DefaultMaxAge+")")
}

// BindRetention defines the flags that say how long letters are kept, and where they go
// then.
func (o *Options) BindRetention(f *pflag.FlagSet) { o.Retention.bind(f) }

// BindArchive defines the flag that says where letters go that are removed.
func (o *Options) BindArchive(f *pflag.FlagSet) {
	f.StringVar(&o.Retention.Archive, "archive", "", "directory that removed dead letters go into, as of the processes that execute")
}

// rules reads the flags. Whether there are such families is found out by the service.
func (r *Retention) rules() (out []postadjudication.RetentionRule, err error) {
	for _, text := range r.Rules {
		rule, err := retentionRule(text)
		if err != nil {
			return nil, optionError("--retain %q: %v", text, err)
		}
		out = append(out, rule)
	}
	return out, nil
}

func retentionRule(text string) (rule postadjudication.RetentionRule, err error) {
	where, keep, found := strings.Cut(text, "=")
	if !found || where == "" || keep == "" {
		return rule, fmt.Errorf("it looks like settlement=P180D")
	}
	if rule.Family, _, found = strings.Cut(where, ":"); found {
		rule.Queue = where
	}
	var count string
	if rule.MaxAge, count, found = strings.Cut(keep, "/"); !found {
		return rule, rule.Validate()
	}
	if rule.MaxCount, err = strconv.Atoi(count); err != nil || rule.MaxCount < 1 {
		return rule, fmt.Errorf("%q is no number of letters", count)
	}
	return rule, rule.Validate()
}

// apply puts what was chosen into a configuration. Its errors are ErrOptions.
func (r *Retention) apply(c *postadjudication.Config) (err error) {
	if c.Retention, err = r.rules(); err != nil || r.Archive == "" {
		return err
	}
	if c.Archive, err = postadjudication.ArchiveDir(r.Archive); err != nil {
		return optionError("--archive: %v", err)
	}
	return nil
}
