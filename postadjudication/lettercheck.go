package postadjudication

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// maxFilterText bounds a text in a filter, in bytes.
const maxFilterText = 512

// maxFilterCount is what a number of attempts or replays can't exceed.
const maxFilterCount = 1<<31 - 1

// Validate tells everything that makes no sense in a filter, each a *FieldError,
// joined.
func (f LetterFilter) Validate() error {
	var errs []error
	refuse := func(field, problem string) { errs = append(errs, &FieldError{Field: field, Problem: problem}) }
	for _, text := range []struct{ field, value string }{
		{"family", f.Family}, {"queue", f.Queue}, {"job_type", f.JobType}, {"error_type", f.ErrorType}, {"error_text", f.ErrorText},
		{"signature", f.Signature}, {"transaction_receipt_id", f.Transaction}, {"submission_receipt_id", f.Submission},
		{"escrow_reference", f.Escrow}, {"replayed_by", f.ReplayedBy},
	} {
		if len(text.value) > maxFilterText || !isPlainText(text.value) {
			refuse(text.field, fmt.Sprintf("must be at most %d bytes of plain text", maxFilterText))
		}
	}
	for _, word := range []struct {
		field, value string
		known        []string
	}{
		{"letter", string(f.Status), stringsOf(background.LetterOpen, background.LetterForked, background.LetterReconciled, background.LetterSuperseded)},
		{"outcome", string(f.Outcome), stringsOf(settlement.Release, settlement.Refund)},
		{"outcome_class", string(f.Class), stringsOf(background.Executed, background.NotExecuted, background.Unknown)},
		{"reason_code", f.ReasonCode, []string{background.ReasonRetryExhausted, background.ReasonFinal, background.ReasonNonRetryableType, background.ReasonOutcomeUnknown, background.ReasonPoisonPill, reasonCaseEnded}},
	} {
		if word.value != "" && !slices.Contains(word.known, word.value) {
			refuse(word.field, "must be one of "+strings.Join(word.known, ", "))
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

func stringsOf[T ~string](all ...T) []string {
	out := make([]string, len(all))
	for i, w := range all {
		out[i] = string(w)
	}
	return out
}

func (f *LetterFilter) checkRanges(refuse func(field, problem string)) {
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
		if d.s < 0 || d.s > Duration(maxRetentionAge) {
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

// dispatchedRun reads the reference of a delivery: "<run id>.<bell>".
func (f *LetterFilter) dispatchedRun() (run background.RunID, delivery int, err error) {
	if f.Dispatch == "" {
		return run, 0, nil
	}
	id, number, _ := strings.Cut(f.Dispatch, ".")
	run, err = receipts.ParseRunID(id)
	if err == nil {
		delivery, err = strconv.Atoi(number)
	}
	if err != nil || delivery < 1 || delivery > maxFilterCount {
		return run, 0, &FieldError{Field: "dispatch_reference", Problem: "must be a run id, a dot and the number of its delivery"}
	}
	return run, delivery, nil
}
