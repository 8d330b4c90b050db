package casework

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// fieldOf returns the field that an error of a request names; "" if there is no error.
func fieldOf(t *testing.T, err error) string {
	t.Helper()
	var wrong *refusal.FieldError
	if err != nil && !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	if wrong == nil {
		return ""
	}
	return wrong.Field
}

// A finding states one class, and a sum exactly if something was executed.
func TestWhichFindingsAreValid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		class       escrow.Class
		moved       int64
		outstanding bool
		field       string
	}{
		"executed":                         {escrow.Executed, 1, false, ""},
		"all that a sum can be":            {escrow.Executed, settlement.MaxMinor, false, ""},
		"not executed":                     {escrow.NotExecuted, 0, false, ""},
		"not executed, with a call out":    {escrow.NotExecuted, 0, true, ""},
		"no class":                         {"", 1, false, "finding"},
		"unknown":                          {escrow.Unknown, 0, false, "finding"},
		"executed, but nothing":            {escrow.Executed, 0, false, "moved"},
		"a negative sum":                   {escrow.Executed, -1, false, "moved"},
		"more than a sum can be":           {escrow.Executed, settlement.MaxMinor + 1, false, "moved"},
		"a sum that was not executed":      {escrow.NotExecuted, 1, false, "moved"},
		"minus a sum that was not":         {escrow.NotExecuted, -1, false, "moved"},
		"executed, with a call out":        {escrow.Executed, 1, true, "call_outstanding"},
		"executed, too much, and call out": {escrow.Executed, settlement.MaxMinor + 1, true, "moved"},
	} {
		f := Finding{Reason: "statement", Class: c.class, Moved: c.moved, Reference: "stmt-1", CallOutstanding: c.outstanding}
		if got := fieldOf(t, f.Validate("user:ada")); got != c.field {
			t.Errorf("%s: %q, want %q", name, got, c.field)
		}
	}
}

// A person confirms a sum that is not the one left to move: of the decision that the run's request states.
func TestWhichSumOfAFindingIsConfirmed(t *testing.T) {
	t.Parallel()
	if got := fieldOf(t, Finding{Reason: "statement", Class: escrow.NotExecuted, Currency: "EUR", Reference: "stmt-1"}.Validate("user:ada")); got != "currency" {
		t.Errorf("a currency of nothing: %q", got)
	}
	for name, c := range map[string]struct {
		finding    Finding
		generation int // of the request; 0: its terms were not read
		moved      int64
		run        escrow.Class
		field      string
	}{
		"what is left":                        {Finding{Class: escrow.Executed, Moved: 70}, 2, 30, escrow.Unknown, ""},
		"less":                                {Finding{Class: escrow.Executed, Moved: 69}, 2, 30, escrow.Unknown, "other_amount"},
		"more":                                {Finding{Class: escrow.Executed, Moved: 71}, 2, 30, escrow.Unknown, "other_amount"},
		"more, confirmed":                     {Finding{Class: escrow.Executed, Moved: 71, OtherAmount: true}, 2, 30, escrow.Unknown, ""},
		"nothing was executed":                {Finding{Class: escrow.NotExecuted}, 2, 30, escrow.Unknown, ""},
		"in the currency of the case":         {Finding{Class: escrow.Executed, Moved: 70, Currency: "EUR"}, 2, 30, escrow.Unknown, ""},
		"in another currency":                 {Finding{Class: escrow.Executed, Moved: 70, Currency: "USD"}, 2, 30, escrow.Unknown, "currency"},
		"in another currency, confirmed":      {Finding{Class: escrow.Executed, Moved: 71, Currency: "USD", OtherAmount: true}, 2, 30, escrow.Unknown, "currency"},
		"in another currency, already paid":   {Finding{Class: escrow.Executed, Moved: 5, Currency: "USD"}, 2, 30, escrow.Executed, "currency"},
		"nothing is left":                     {Finding{Class: escrow.Executed, Moved: 5}, 2, 100, escrow.Unknown, ""},
		"the run has paid":                    {Finding{Class: escrow.Executed, Moved: 5}, 2, 30, escrow.Executed, ""},
		"what an older decision asked for":    {Finding{Class: escrow.Executed, Moved: 40}, 1, 30, escrow.Unknown, ""},
		"what is left of another decision":    {Finding{Class: escrow.Executed, Moved: 70}, 1, 30, escrow.Unknown, "other_amount"},
		"no terms: what is left":              {Finding{Class: escrow.Executed, Moved: 70}, 0, 30, escrow.Unknown, ""},
		"no terms: what the request asks for": {Finding{Class: escrow.Executed, Moved: 40}, 0, 30, escrow.Unknown, "other_amount"},
	} {
		seen := journal.Snapshot{Run: background.Run{Class: c.run}}
		seen.Case.Currency = "EUR"
		seen.Case.State = settlement.State{Asked: 100, Moved: c.moved, Generation: 2}
		if c.generation > 0 {
			seen.Run.Terms = &receipts.Terms{Generation: c.generation, Amount: 40}
		}
		if got := fieldOf(t, c.finding.checkAmount(&seen)); got != c.field {
			t.Errorf("%s: %q, want %q", name, got, c.field)
		}
	}
}

// An answer pays only if it says executed, and a sum that can be believed. What is neither executed nor refused is
// unknown, and the call is made again.
func TestWhatTheAnswerOfAnExecutorMeans(t *testing.T) {
	t.Parallel()
	const asked = 1000
	for name, c := range map[string]struct {
		answer escrow.Answer
		class  escrow.Class
		moved  int64
		retry  bool
		failed string // the failure's type; "" if there is none
	}{
		"executed":                        {escrow.Answer{Class: escrow.Executed, Moved: asked}, escrow.Executed, asked, false, ""},
		"in part":                         {escrow.Answer{Class: escrow.Executed, Moved: 1}, escrow.Executed, 1, false, ""},
		"more":                            {escrow.Answer{Class: escrow.Executed, Moved: maxBelievableMoved}, escrow.Executed, maxBelievableMoved, false, ""},
		"executed without a sum":          {escrow.Answer{Class: escrow.Executed}, escrow.Unknown, 0, true, "executor.unreadable"},
		"executed, a negative sum":        {escrow.Answer{Class: escrow.Executed, Moved: -1}, escrow.Unknown, 0, true, "executor.unreadable"},
		"executed, an absurd sum":         {escrow.Answer{Class: escrow.Executed, Moved: maxBelievableMoved + 1}, escrow.Unknown, 0, true, "executor.unreadable"},
		"refused":                         {escrow.Answer{Class: escrow.NotExecuted, Type: "x"}, escrow.NotExecuted, 0, false, "x"},
		"refused, to be retried":          {escrow.Answer{Class: escrow.NotExecuted, Retry: true}, escrow.NotExecuted, 0, true, "executor.unspecified"},
		"refused, with a sum":             {escrow.Answer{Class: escrow.NotExecuted, Moved: asked, Type: "x"}, escrow.NotExecuted, 0, false, "x"},
		"unknown, and not to be repeated": {escrow.Answer{Class: escrow.Unknown, Type: "x"}, escrow.Unknown, 0, false, "x"},
		"unknown, with a sum":             {escrow.Answer{Class: escrow.Unknown, Moved: asked, Retry: true, Type: "x"}, escrow.Unknown, 0, true, "x"},
		"no class":                        {escrow.Answer{Type: "x"}, escrow.Unknown, 0, true, "x"},
		"another class":                   {escrow.Answer{Class: "paid", Moved: asked}, escrow.Unknown, 0, true, "executor.unspecified"},
	} {
		r, failed := resultOf(c.answer, asked), ""
		if r.Failure != nil {
			failed = r.Failure.Type
		}
		if r.Class != c.class || r.Moved != c.moved || r.Retry != c.retry || failed != c.failed {
			t.Errorf("%s: %+v, %q", name, r, failed)
		}
	}
}

// An answer is a contradiction if it says less than is on record under its operation key, or something else; that
// nothing was executed, only about an attempt that stated a payment, and late.
func TestWhichAnswersContradictTheRecord(t *testing.T) {
	t.Parallel()
	payer, fork := background.RunID(uuid.New()), background.RunID(uuid.New())
	paid := binding.Payment{Paid: 100, Reference: "pay-1", StatedBy: payer, Statements: []binding.Statement{{Run: payer, Attempt: 2}, {Run: fork, Attempt: 1}}}
	unrecordable := background.Transition{Subtype: receipts.AnsweredLate, Reason: background.ReasonUnrecordable, Result: background.Result{Class: escrow.Unknown, Failure: &background.Failure{Code: string(escrow.Executed)}}}
	failed := unrecordable
	failed.Result.Failure = &background.Failure{Code: "500"}
	said := func(subtype receipts.Subtype, class escrow.Class, moved int64, reference string) background.Transition {
		return background.Transition{Subtype: subtype, Result: background.Result{Class: class, Moved: moved, Reference: reference}}
	}
	for name, c := range map[string]struct {
		tr       background.Transition
		recorded binding.Payment
		run      background.RunID
		attempt  int
		want     bool
	}{
		"nothing is on record":         {said(receipts.AnsweredLate, escrow.Executed, 90, ""), binding.Payment{}, payer, 2, false},
		"the same":                     {said(receipts.AnsweredLate, escrow.Executed, 100, "pay-1"), paid, payer, 2, false},
		"the same without a reference": {said(receipts.AnsweredLate, escrow.Executed, 100, ""), paid, payer, 2, false},
		"another reference":            {said(receipts.AnsweredLate, escrow.Executed, 100, "pay-2"), paid, payer, 2, true},
		"less":                         {said(receipts.Reconciled, escrow.Executed, 99, "pay-1"), paid, payer, 2, true},
		"more":                         {said(receipts.Reconciled, escrow.Executed, 101, "pay-2"), paid, payer, 2, false},
		"a sum that is not recorded":   {unrecordable, paid, background.RunID(uuid.New()), 9, true},
		"an unknown outcome":           {failed, paid, payer, 2, false},
		"not executed":                 {said(receipts.AnsweredLate, escrow.NotExecuted, 0, ""), paid, payer, 2, true},
		"unknown":                      {said(receipts.AnsweredLate, escrow.Unknown, 0, ""), paid, payer, 2, false},
		"not executed, in time":        {said(receipts.RetryScheduled, escrow.NotExecuted, 0, ""), paid, payer, 2, false},
		"not executed, of another run": {said(receipts.AnsweredLate, escrow.NotExecuted, 0, ""), paid, background.RunID(uuid.New()), 2, false},
		"not executed, of a fork that stated it as well": {said(receipts.AnsweredLate, escrow.NotExecuted, 0, ""), paid, fork, 1, true},
		"not executed, of another try":                   {said(receipts.AnsweredLate, escrow.NotExecuted, 0, ""), paid, payer, 1, false},
	} {
		c.tr.At, c.tr.Run = time.Unix(1, 0), background.Run{ID: c.run, Attempt: c.attempt}
		got := contradictionReceipts(&c.tr, &background.Run{ID: c.run}, c.recorded)
		if (len(got) == 1) != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		for _, d := range got {
			if d.Subtype != receipts.Contradicted || d.Payload.Attempt != c.attempt || d.Payload.Moved != c.tr.Result.Moved || d.Payload.Recorded != 100 || d.Payload.RecordedReference != "pay-1" {
				t.Errorf("%s: %+v", name, d)
			}
		}
	}
}
