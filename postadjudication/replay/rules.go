package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Rules keeps the rules that replay dead letters.
type Rules struct {
	s             *Replayer
	tenant, actor string
}

// Replayer keeps the rules of tenants, and applies them.
type Replayer struct {
	journal  *journal.Journal
	applier  *casework.Applier
	index    *deadletter.Searcher
	runner   *runner
	executes bool
	every    time.Duration
	now      func() time.Time
	log      *zap.Logger
}

// As returns the rules of a tenant, changed in the name of actor. Reading needs no actor.
func (s *Replayer) As(tenant, actor string) Rules { return Rules{s, tenant, actor} }

// Rule automatically replays (forks) or marks open dead letters of a tenant. There are no rules
// by default.
//
// A rule replays a letter only if it is certain that nothing was executed, and at most MaxReplays
// times. It never replays a letter that is held, that requires manual review, or that a person
// marked as not worth retrying. It never overwrites a person's mark.
type Rule struct {
	Name    string            `json:"name"` // letters, digits, dots, dashes and underscores
	Enabled bool              `json:"enabled"`
	Filter  deadletter.Filter `json:"filter"`
	All     bool              `json:"all,omitempty"` // all open letters: required if the filter is empty, else refused
	// Delay is counted from death: an ISO 8601 duration such as PT1H, or 90m, 36h, 30d.
	Delay string `json:"delay"`
	// MaxReplays is how often the rule may replay a letter with its ancestors by fork. Replays
	// by former versions of a rule of the same name count.
	MaxReplays int                 `json:"max_replays,omitempty"`
	Policy     *retrypolicy.Policy `json:"policy,omitempty"` // of the forks; nil: the letter's
	Mark       *Mark               `json:"mark,omitempty"`   // mark instead of replaying
}

// Mark is how a rule marks a letter. A nil member leaves the letter's mark unchanged.
type Mark struct {
	Reprocess *bool  `json:"reprocess_eligible,omitempty"`
	Review    *bool  `json:"manual_review_required,omitempty"`
	Reason    string `json:"reason"` // required
}

// StoredRule is a rule with its version, and who set it when and why.
type StoredRule struct {
	Rule
	Tenant  string    `json:"tenant"`
	Version int64     `json:"version"` // counts the changes; 0: there is none
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
}

const (
	// MaxReplays is the maximum of Rule.MaxReplays.
	MaxReplays = 100

	// maxSize bounds a rule as it is stored, in bytes.
	maxSize = 8 << 10
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// actor returns the actor in receipts of the rule's actions.
func (r *Rule) actor() string { return "rule:" + r.Name }

// Parse parses a rule from a JSON object. A member that is unknown, null or given twice, also
// in the filter, is refused as a *FieldError that names it.
func Parse(text []byte) (Rule, error) {
	var in struct {
		Rule
		Filter json.RawMessage `json:"filter"`
	}
	if err := validate.Unambiguous("rule", text, &in); err != nil {
		return Rule{}, err
	}
	if member := nullMember(text); member != "" {
		return Rule{}, &refusal.FieldError{Field: member, Problem: "is null; leave it out"}
	}
	read := json.NewDecoder(bytes.NewReader(text))
	read.DisallowUnknownFields()
	if err := read.Decode(&in); err != nil {
		return Rule{}, unreadableRule(err)
	}
	if _, err := read.Token(); !errors.Is(err, io.EOF) {
		return Rule{}, &refusal.FieldError{Field: "rule", Problem: "must be one JSON object"}
	}
	r := in.Rule
	var err error
	if in.Filter != nil {
		r.Filter, err = deadletter.ParseFilter(in.Filter)
	}
	if err := errors.Join(err, r.Validate()); err != nil {
		return Rule{}, err
	}
	return r, nil
}

// nullMember returns the first member of an object, by name, that is null: read as absent it
// would let a rule do more than was meant. It returns "" if text is not an object.
func nullMember(text []byte) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if bytes.Equal(bytes.TrimSpace(members[name]), []byte("null")) {
			return name
		}
	}
	return ""
}

// unreadableRule names the member that could not be decoded, if known.
func unreadableRule(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		field := strings.TrimPrefix(wrong.Field, "Rule.")
		if field == "" {
			field = "rule"
		}
		return &refusal.FieldError{Field: field, Problem: "must not be a JSON " + wrong.Value}
	}
	if member, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return &refusal.FieldError{Field: strings.Trim(member, `"`), Problem: "is not a member of a rule"}
	}
	return &refusal.FieldError{Field: "rule", Problem: err.Error()}
}

// Validate returns a *FieldError for each invalid member, joined.
func (r *Rule) Validate() error {
	var errs []error
	refuse := func(wrong bool, field, problem string) {
		if wrong {
			errs = append(errs, &refusal.FieldError{Field: field, Problem: problem})
		}
	}
	f := r.Filter
	f.Status = background.NoLetter
	refuse(!namePattern.MatchString(r.Name), "name", "must be 1 to 64 letters, digits, dots, dashes or underscores, a letter or digit first")
	refuse(f == (deadletter.Filter{}) && !r.All, "filter", "must not be empty; for all letters set all")
	refuse(f != (deadletter.Filter{}) && r.All, "all", "must not be given beside a filter")
	refuse(r.Filter.Status != background.NoLetter && r.Filter.Status != background.LetterOpen, "letter", "must be open: a rule changes only open letters")
	errs = append(errs, r.Filter.Validate())
	if _, err := parseDelay(r.Delay); err != nil {
		errs = append(errs, &refusal.FieldError{Field: "delay", Problem: err.Error()})
	}
	if r.Mark != nil {
		refuse(r.MaxReplays != 0, "max_replays", "applies to replays only")
		refuse(r.Policy != nil, "policy", "applies to replays only")
		refuse(r.Mark.Reprocess == nil && r.Mark.Review == nil, "mark", "reprocess_eligible or manual_review_required must be given")
		errs = append(errs, validate.Text("mark.reason", r.Mark.Reason, 1024))
	} else {
		refuse(r.MaxReplays < 1 || r.MaxReplays > MaxReplays, "max_replays", fmt.Sprintf("must be 1 to %d", MaxReplays))
		refuse(f.Class != "" && f.Class != escrow.NotExecuted, "outcome_class", "must be not_executed: a rule replays nothing else")
		refuse(f.Held != nil && *f.Held, "held", "must not be true: a rule replays no held letters")
		refuse(f.Review != nil && *f.Review, "manual_review_required", "must not be true: a rule replays no letters that a person must review first")
	}
	if r.Policy != nil {
		errs = append(errs, validate.Policy(*r.Policy, false))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.storable()
}

// storable refuses a rule that must not be stored in receipts.
func (r *Rule) storable() error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	if field, found := redact.Find(text); found {
		return &refusal.FieldError{Field: field, Problem: "looks like a secret, card or account number"}
	}
	if len(text) > maxSize {
		return &refusal.FieldError{Field: "rule", Problem: fmt.Sprintf("must be at most %d bytes of JSON", maxSize)}
	}
	return nil
}

// encode returns the canonical form of a rule: equal rules have equal bytes.
func (r *Rule) encode() ([]byte, error) {
	next := *r
	next.Filter.From, next.Filter.To = deadletter.JournalTime(r.Filter.From), deadletter.JournalTime(r.Filter.To)
	if r.Policy != nil {
		p := r.Policy.Normalize()
		next.Policy = &p
	}
	return json.Marshal(next)
}

// parseDelay parses how long a rule waits after a letter's death.
func parseDelay(text string) (time.Duration, error) {
	if text == "PT0S" {
		return 0, nil
	}
	if validate.ISODuration.MatchString(text) {
		return validate.ParseISODuration(text)
	}
	d, err := deadletter.ParseDuration(text)
	if err != nil || d > deadletter.Duration(validate.MaxAge) {
		return 0, fmt.Errorf("%q is not a length of time such as PT1H, 90m, 36h or 30d", text)
	}
	return time.Duration(d), nil
}
