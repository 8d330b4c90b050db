package deadletter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Filter selects dead letters that match all non-zero members. Invalid members are
// refused, never ignored.
type Filter struct {
	Status     background.LetterStatus `json:"letter,omitempty"` // open, forked, reconciled or superseded
	Family     string                  `json:"family,omitempty"`
	Queue      string                  `json:"queue,omitempty"`
	JobType    string                  `json:"job_type,omitempty"` // the family's name, for settlements, or the target of those of remote workers; with a * at its end all types that begin so
	Outcome    settlement.Outcome      `json:"outcome,omitempty"`  // of the adjudication
	ReasonCode string                  `json:"reason_code,omitempty"`
	Class      background.Class        `json:"outcome_class,omitempty"`
	ErrorType  string                  `json:"error_type,omitempty"`
	ErrorText  string                  `json:"error_text,omitempty"` // substring of the last failure's message, case-insensitive
	Signature  string                  `json:"signature,omitempty"`  // Letter.Signature

	From        time.Time `json:"died_from,omitzero"`    // died at or after
	To          time.Time `json:"died_to,omitzero"`      // died before
	OlderThan   Duration  `json:"older_than,omitzero"`   // died at least this long ago
	YoungerThan Duration  `json:"younger_than,omitzero"` // died less than this long ago

	MinAttempts *int64 `json:"min_attempts,omitempty"`
	MaxAttempts *int64 `json:"max_attempts,omitempty"`
	MinAmount   *int64 `json:"min_amount,omitempty"` // in minor units of any currency
	MaxAmount   *int64 `json:"max_amount,omitempty"`
	Currency    string `json:"currency,omitempty"`

	Transaction string `json:"transaction_receipt_id,omitempty"` // of a plain family: the retry key
	Submission  string `json:"submission_receipt_id,omitempty"`
	Escrow      string `json:"escrow_reference,omitempty"`
	Dispatch    string `json:"dispatch_reference,omitempty"`

	ReplayedBy string `json:"replayed_by,omitempty"` // who last forked the letter or one of its ancestors
	MinReplays *int64 `json:"min_replays,omitempty"`
	MaxReplays *int64 `json:"max_replays,omitempty"`

	Held           *bool    `json:"held,omitempty"`
	Reprocess      *bool    `json:"reprocess_eligible,omitempty"`
	Review         *bool    `json:"manual_review_required,omitempty"`
	ExpiringWithin Duration `json:"expiring_within,omitzero"` // open, and expires within this time from now
}

// Duration is a length of time. Its text form is like 90m, 36h or 30d.
type Duration time.Duration

// ParseDuration parses the text form of a Duration, and any text of time.ParseDuration.
func ParseDuration(text string) (Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err == nil && n >= 0 && n <= int64(validate.MaxAge/validate.Day) {
			return Duration(time.Duration(n) * validate.Day), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a length of time such as 90m, 36h or 30d", text)
	}
	return Duration(d), nil
}

// Set parses a command line flag.
func (s *Duration) Set(text string) (err error) {
	*s, err = ParseDuration(text)
	return err
}

// Type names the type in a usage text.
func (s *Duration) Type() string { return "span" }

func (s Duration) String() string {
	if s > 0 && time.Duration(s)%validate.Day == 0 {
		return strconv.FormatInt(int64(time.Duration(s)/validate.Day), 10) + "d"
	}
	return time.Duration(s).String()
}

// MarshalText returns String.
func (s Duration) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is Set.
func (s *Duration) UnmarshalText(text []byte) error { return s.Set(string(text)) }

// ParseFilter parses a filter from a JSON object. Errors: a *refusal.FieldError (joined, one per
// field) for a member that is unknown, given twice, invalid or empty.
func ParseFilter(text []byte) (f Filter, err error) {
	if err := validate.Unambiguous("filter", text, &f); err != nil {
		return Filter{}, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		return Filter{}, unreadableFilter(text, err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return Filter{}, &refusal.FieldError{Field: "filter", Problem: "must be one JSON object"}
	}
	if err := errors.Join(f.Validate(), f.checkNoEmptyMember(text)); err != nil {
		return Filter{}, err
	}
	return f, nil
}

// checkNoEmptyMember refuses members that select everything, such as an empty text from a
// script's unset variable: an ignored member would widen the filter.
func (f Filter) checkNoEmptyMember(text []byte) error {
	canonical, err := f.Encode()
	if err != nil {
		return err
	}
	var given, effective map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(text, &given), json.Unmarshal(canonical, &effective)); err != nil || given == nil {
		return &refusal.FieldError{Field: "filter", Problem: "must be one JSON object"}
	}
	var errs []error
	for _, name := range validate.SortedKeys(given) {
		if _, is := effective[name]; !is {
			errs = append(errs, &refusal.FieldError{Field: name, Problem: "is empty and selects nothing; leave it out"})
		}
	}
	return errors.Join(errs...)
}

// unreadableFilter returns an error for each member that can't be decoded alone, ordered by
// name.
func unreadableFilter(text []byte, why error) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil || members == nil {
		return &refusal.FieldError{Field: "filter", Problem: "must be one JSON object"}
	}
	var errs []error
	for _, name := range validate.SortedKeys(members) {
		alone, err := json.Marshal(map[string]json.RawMessage{name: members[name]})
		if err != nil {
			return err
		}
		in := json.NewDecoder(bytes.NewReader(alone))
		in.DisallowUnknownFields()
		if err := in.Decode(new(Filter)); err != nil {
			errs = append(errs, &refusal.FieldError{Field: name, Problem: decodeProblem(err)})
		}
	}
	if errs == nil {
		return &refusal.FieldError{Field: "filter", Problem: why.Error()}
	}
	return errors.Join(errs...)
}

func decodeProblem(err error) string {
	var wrong *json.UnmarshalTypeError
	switch {
	case strings.HasPrefix(err.Error(), "json: unknown field"):
		return "is not a member of the filter"
	case errors.As(err, &wrong):
		return "must not be a JSON " + wrong.Value
	}
	return err.Error()
}

// Encode returns the canonical form of a filter: equal filters have equal bytes, to store and
// to hash.
func (f Filter) Encode() ([]byte, error) {
	f.From, f.To = JournalTime(f.From), JournalTime(f.To)
	return json.Marshal(f)
}

// JournalTime returns a time in the precision of the journal.
func JournalTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// MaxFilterText bounds a text in a filter, in bytes.
const MaxFilterText = 512

// maxFilterCount bounds numbers of attempts and replays.
const maxFilterCount = 1<<31 - 1

// letterReasons are the reason codes that a dead letter can have.
var letterReasons = []string{
	background.ReasonRetryExhausted, background.ReasonFinal, background.ReasonNonRetryableType, background.ReasonOutcomeUnknown, background.ReasonPoisonPill,
	background.ReasonUnrecordable, background.ReasonRequestAltered, background.ReasonOrdered, background.ReasonExpired,
	casework.ReasonCaseEnded, casework.ReasonPaidUnderOlderKey,
}

// ReasonCodes returns the reason codes that a dead letter can have.
func ReasonCodes() []string { return slices.Clone(letterReasons) }

// Validate returns a *refusal.FieldError for each invalid member, joined.
func (f Filter) Validate() error {
	var errs []error
	refuse := func(field, problem string) { errs = append(errs, &refusal.FieldError{Field: field, Problem: problem}) }
	for _, text := range []struct{ field, value string }{
		{"family", f.Family}, {"queue", f.Queue}, {"job_type", f.JobType}, {"error_type", f.ErrorType}, {"error_text", f.ErrorText},
		{"signature", f.Signature}, {"transaction_receipt_id", f.Transaction}, {"submission_receipt_id", f.Submission},
		{"escrow_reference", f.Escrow}, {"replayed_by", f.ReplayedBy},
	} {
		if text.value != "" { // stored ids and texts may have characters that new ones can't have
			errs = append(errs, validate.KnownID(text.field, text.value, MaxFilterText))
		}
	}
	for _, choice := range []struct {
		field, value string
		known        []string
	}{
		{"letter", string(f.Status), validate.Words(background.LetterOpen, background.LetterForked, background.LetterReconciled, background.LetterSuperseded)},
		{"outcome", string(f.Outcome), validate.Words(settlement.Release, settlement.Refund)},
		{"outcome_class", string(f.Class), validate.Words(background.Executed, background.NotExecuted, background.Unknown)},
		{"reason_code", f.ReasonCode, letterReasons},
	} {
		if choice.value != "" && !slices.Contains(choice.known, choice.value) {
			refuse(choice.field, "must be one of "+strings.Join(choice.known, ", "))
		}
	}
	if f.Currency != "" && (len(f.Currency) != 3 || strings.Trim(f.Currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		refuse("currency", "must be three capital letters, such as EUR")
	}
	if _, _, err := f.dispatchedRun(); err != nil {
		errs = append(errs, err)
	}
	f.checkRanges(refuse)
	return errors.Join(errs...)
}

func (f *Filter) checkRanges(refuse func(field, problem string)) {
	for _, r := range []struct {
		least, most string
		from, to    *int64
		limit       int64
	}{
		{"min_attempts", "max_attempts", f.MinAttempts, f.MaxAttempts, maxFilterCount}, {"min_replays", "max_replays", f.MinReplays, f.MaxReplays, maxFilterCount},
		{"min_amount", "max_amount", f.MinAmount, f.MaxAmount, settlement.MaxMinor},
	} {
		for _, end := range []struct {
			field string
			n     *int64
		}{{r.least, r.from}, {r.most, r.to}} {
			if end.n != nil && (*end.n < 0 || *end.n > r.limit) {
				refuse(end.field, fmt.Sprintf("must be 0 to %d", r.limit))
			}
		}
		if r.from != nil && r.to != nil && *r.from > *r.to {
			refuse(r.most, "must not be less than "+r.least)
		}
	}
	if !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		refuse("died_to", "must be later than died_from")
	}
	for _, d := range []struct {
		field string
		s     Duration
	}{{"older_than", f.OlderThan}, {"younger_than", f.YoungerThan}, {"expiring_within", f.ExpiringWithin}} {
		if d.s < 0 || d.s > Duration(validate.MaxAge) {
			refuse(d.field, "must be a length of time of at most 200 years")
		}
	}
	if f.OlderThan != 0 && f.YoungerThan != 0 && f.OlderThan >= f.YoungerThan {
		refuse("younger_than", "must be more than older_than")
	}
	for _, at := range []struct {
		field string
		t     time.Time
	}{{"died_from", f.From}, {"died_to", f.To}} {
		if !at.t.IsZero() && (at.t.Year() < 1 || at.t.Year() > 9999) {
			refuse(at.field, "must be in the years 1 to 9999")
		}
	}
}

// dispatchedRun parses the reference of a delivery: "<run id>.<number of the delivery>".
func (f *Filter) dispatchedRun() (run background.RunID, delivery int, err error) {
	if f.Dispatch == "" {
		return run, 0, nil
	}
	id, number, _ := strings.Cut(f.Dispatch, ".")
	run, err = receipts.ParseRunID(id)
	if err == nil {
		delivery, err = strconv.Atoi(number)
	}
	if err != nil || delivery < 1 || delivery > maxFilterCount {
		return run, 0, &refusal.FieldError{Field: "dispatch_reference", Problem: "must be a run id, a dot and the number of its delivery"}
	}
	return run, delivery, nil
}

// ExpiresSoon is how long before its expiry a letter is announced, and the minimum time between
// announcement and expiry. Where MaxAge is less than four times as long, it is a quarter of MaxAge.
const ExpiresSoon = 7 * 24 * time.Hour
