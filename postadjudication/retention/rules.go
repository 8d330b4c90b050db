package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
)

// Rule configures how long open letters of a family, or of one of its queues, are
// kept. Letters without a rule are kept for DefaultMaxAge, in any number.
type Rule struct {
	Family string // "settlement", or the name of a PlainFamily
	Queue  string // one of the family's, such as "settlement:0", or any of jobs; empty: all queues without a rule
	// MaxAge is counted from death: an ISO 8601 duration such as P180D. A year counts
	// 365 days, a month a twelfth of it. Empty means DefaultMaxAge. Shortening it purges
	// nothing at once: expired letters are announced first, see Keeper.Prune.
	MaxAge string
	// MaxCount keeps only the newest letters of each tenant, and of jobs the newest of each of its
	// queues. Tenants do not count towards each other's limit. 0 means any number, and
	// DefaultMaxJobs of jobs.
	MaxCount int
	// Pruning is what happens to a letter whose retention is over. Empty: it is archived if there is an archive.
	Pruning Pruning
}

// Pruning is what happens to a letter before it is removed.
type Pruning string

// What happens. Delete keeps no copy, whether or not there is an archive, and is not for settlements. ToArchive needs an archive.
const (
	Delete    Pruning = "delete"
	ToArchive Pruning = "archive"
)

// ErrRule marks the error of Open for an invalid Config.Retention.
var ErrRule = errors.New("postadjudication: Config.Retention")

// Validate reports whether a rule is valid. It does not check that the family exists.
func (rule Rule) Validate() error {
	_, err := rule.parse(cmp.Or(rule.MaxAge, DefaultMaxAge))
	return err
}

// DefaultMaxAge is how long letters without a rule are kept.
const DefaultMaxAge = "P180D"

// DefaultMaxJobs is how many letters of jobs are kept in each queue without a rule. Open Job Spec
// 1.0, dead-letter extension, section 8.
const DefaultMaxJobs = 10_000

// parsedRule is a rule with its age in time.
type parsedRule struct {
	journal.RetentionScope
	maxAge   time.Duration
	maxCount int
	pruning  Pruning
}

// needsArchive reports whether the rule's letters may only be purged into an archive.
func (r parsedRule) needsArchive() bool { return r.Family == casework.Family }

func (r parsedRule) expiresAt(died time.Time) time.Time { return died.Add(r.maxAge) }

// expiredBefore returns the time of death before which letters are expired at a time.
func (r parsedRule) expiredBefore(at time.Time) time.Time { return at.Add(-r.maxAge) }

// announceBefore returns the time of death before which letters are to be announced at a time.
func (r parsedRule) announceBefore(at time.Time) time.Time {
	return at.Add(r.noticePeriod() - r.maxAge)
}

// noticePeriod returns the minimum time between announcing a letter's expiry and purging it.
func (r parsedRule) noticePeriod() time.Duration { return min(deadletter.ExpiresSoon, r.maxAge/4) }

// announcedEnd returns the expiry of a letter that is announced at a time.
func (r parsedRule) announcedEnd(died, at time.Time) time.Time {
	return casework.Later(r.expiresAt(died), at.Add(r.noticePeriod()))
}

// unannounced reports whether letters are purged without an announcement: those of jobs are.
func (r parsedRule) unannounced() bool { return r.Family == casework.JobFamily }

// expiredAt reports whether a letter is expired at a time, both by its age and by the announced
// expiry.
func (r parsedRule) expiredAt(f journal.LetterRow, at time.Time) bool {
	if r.unannounced() {
		return f.Run.DeadAt.Before(r.expiredBefore(at)) // strictly older
	}
	return !f.Annotations.RetentionEndsAt.IsZero() && !casework.Later(f.Annotations.RetentionEndsAt, r.expiresAt(f.Run.DeadAt)).After(at)
}

// ruleSet holds one rule for each family, under an empty queue, and one for each queue with a rule of
// its own, which is exempt from its family's.
type ruleSet map[ruleKey]parsedRule

type ruleKey struct{ family, queue string }

// ruleFor returns the rule of a letter.
func (r ruleSet) ruleFor(family, queue string) parsedRule {
	if own, ok := r[ruleKey{family, queue}]; ok {
		return own
	}
	return r[ruleKey{family: family}]
}

// all returns the rules in a fixed order: those of families, then those of queues.
func (r ruleSet) all() (out []parsedRule) {
	byQueue := func(a, b ruleKey) int {
		return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.family, b.family))
	}
	for _, key := range slices.SortedFunc(maps.Keys(r), byQueue) {
		out = append(out, r[key])
	}
	return out
}

// newRuleSet parses the rules for the given families.
func newRuleSet(rules []Rule, families []string) (ruleSet, error) {
	out := ruleSet{}
	def, err := validate.ParseISODuration(DefaultMaxAge)
	if err != nil {
		return out, err
	}
	for _, f := range families {
		rule := parsedRule{RetentionScope: journal.RetentionScope{Family: f}, maxAge: def}
		if f == casework.JobFamily {
			rule.maxCount = DefaultMaxJobs
		}
		out[ruleKey{family: f}] = rule
	}
	seen := map[ruleKey]bool{}
	for i, rule := range rules {
		key := ruleKey{rule.Family, rule.Queue}
		read, err := rule.parse(cmp.Or(rule.MaxAge, DefaultMaxAge))
		if _, known := out[ruleKey{family: rule.Family}]; err == nil && !known {
			err = fmt.Errorf("there is no family %q", rule.Family)
		}
		if err == nil && seen[key] {
			err = fmt.Errorf("there are two rules for %s %s", rule.Family, rule.Queue)
		}
		if err != nil {
			return out, fmt.Errorf("%w[%d]: %w", ErrRule, i, err)
		}
		seen[key], out[key] = true, read
	}
	for key := range seen {
		if key.queue == "" {
			continue
		}
		f := out[ruleKey{family: key.family}]
		f.Except = append(f.Except, key.queue)
		slices.Sort(f.Except)
		out[ruleKey{family: key.family}] = f
	}
	return out, nil
}

// parse parses a rule with the given age.
func (rule Rule) parse(age string) (r parsedRule, err error) {
	r = parsedRule{RetentionScope: journal.RetentionScope{Family: rule.Family, Queue: rule.Queue}, maxCount: rule.MaxCount, pruning: rule.Pruning}
	if rule.Family == casework.JobFamily {
		r.maxCount = cmp.Or(r.maxCount, DefaultMaxJobs)
		if rule.Queue != "" {
			err = validate.Identifier("queue", rule.Queue, 128)
		}
	} else if rule.Queue != "" && !regexp.MustCompile(`^`+regexp.QuoteMeta(rule.Family)+`:(0|[1-9]\d{0,3})$`).MatchString(rule.Queue) {
		return r, fmt.Errorf("queue %q is not one of the family's, which look like %s:0", rule.Queue, rule.Family)
	}
	switch {
	case rule.MaxCount < 0:
		return r, fmt.Errorf("MaxCount is negative")
	case rule.Pruning != "" && rule.Pruning != Delete && rule.Pruning != ToArchive:
		return r, fmt.Errorf("%q is neither %s nor %s", rule.Pruning, Delete, ToArchive)
	case rule.Pruning == Delete && r.needsArchive():
		return r, fmt.Errorf("letters of settlements are not deleted without a copy")
	}
	maxAge, ageErr := validate.ParseISODuration(age)
	r.maxAge = maxAge
	return r, errors.Join(err, ageErr)
}

// Effective is how long this process keeps open letters of a family, or of one of its
// queues.
type Effective struct {
	Family   string              `json:"family"`
	Queue    string              `json:"queue,omitempty"`     // empty: all queues without a rule
	MaxAge   deadletter.Duration `json:"max_age"`             // from death
	MaxCount int                 `json:"max_count,omitempty"` // of each tenant; any number if absent
	// Archived means that letters are archived before they are purged. Without an archive,
	// letters of settlements are kept. Letters of a rule that deletes are never archived.
	Archived bool `json:"archived"`
}

// Retention returns the rule of each family, followed by that of each queue with a rule of its
// own.
func (p Schedule) Retention(context.Context) ([]Effective, error) {
	out := []Effective{}
	for _, r := range p.s.rules.all() {
		out = append(out, Effective{Family: r.Family, Queue: r.Queue, MaxAge: deadletter.Duration(r.maxAge), MaxCount: r.maxCount, Archived: p.s.archive != nil && r.pruning != Delete})
	}
	return out, nil
}

// Kept returns how long open letters of a queue are kept, and how many; 0: no limit, or this process
// has no rule for the family.
func (k *Keeper) Kept(family, queue string) (age time.Duration, count int) {
	r := k.rules.ruleFor(family, queue)
	return r.maxAge, r.maxCount
}

// RetentionOf returns how long open letters of a queue are kept; false: this process has no rule for the
// family.
func (k *Keeper) RetentionOf(family, queue string) (time.Duration, bool) {
	age, _ := k.Kept(family, queue)
	return age, age > 0
}
