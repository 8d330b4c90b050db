package postadjudication_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// checkSpelling checks that an id is refused in a field if its spelling is wrong.
func checkSpelling(t *testing.T, s testkit.Spelling, field string, err error) {
	t.Helper()
	var refused *refusal.FieldError
	switch {
	case s.Wrong == "" && err != nil:
		t.Errorf("%s %+q: %v", field, s.ID, err)
	case s.Wrong != "" && (!errors.As(err, &refused) || refused.Field != field || !strings.HasPrefix(refused.Problem, "has "+s.Wrong)):
		t.Errorf("%s %+q: %v, want %s named", field, s.ID, err, s.Wrong)
	}
}

// wrongSpellings returns spellings that are refused, one in so many.
func wrongSpellings(oneIn int) (ids []string) {
	for i, s := range testkit.Spellings() {
		if s.Wrong != "" && i%oneIn == 0 {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func TestNoSpellingOfAnIDMakesASecondOne(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withEcho)
	ctx := t.Context()
	sets := map[string]func(*postadjudication.Adjudication, string){
		"tenant":                 func(a *postadjudication.Adjudication, id string) { a.Tenant = id },
		"transaction_receipt_id": func(a *postadjudication.Adjudication, id string) { a.TransactionReceiptID = id },
		"submission_receipt_id":  func(a *postadjudication.Adjudication, id string) { a.SubmissionReceiptID = id },
		"adjudication_id":        func(a *postadjudication.Adjudication, id string) { a.AdjudicationID = id },
		"escrow_reference":       func(a *postadjudication.Adjudication, id string) { a.EscrowReference = id },
		"actor":                  func(a *postadjudication.Adjudication, id string) { a.Actor = id },
		"request":                func(a *postadjudication.Adjudication, id string) { a.Request = id },
	}
	n, accepted := 0, 0
	for _, s := range testkit.Spellings() {
		for field, set := range sets {
			n++
			a := rig.Release(n)
			set(&a, s.ID)
			var err error
			if s.Wrong == "" {
				_, err = r.Submit(ctx, a)
				accepted++
			} else {
				_, err = submitAgain(r, a)
			}
			checkSpelling(t, s, field, err)
		}
		for field, task := range map[string]postadjudication.Task{
			"tenant": {Tenant: s.ID, Family: "echo"}, "retry_key": {Tenant: "acme", Family: "echo", RetryKey: s.ID}, "actor": {Tenant: "acme", Family: "echo", Actor: s.ID},
		} {
			_, err := r.SubmitTask(ctx, task)
			checkSpelling(t, s, field, err)
			if s.Wrong == "" {
				accepted++
			}
		}
		_, _, err := r.BeginRequest(ctx, "acme", s.ID, [32]byte{})
		checkSpelling(t, s, "Idempotency-Key", err)
		_, _, err = r.As(s.ID, "root").Keys.Create(ctx, newKey())
		checkSpelling(t, s, "tenant", err)
	}
	if runs := r.CountRows("runs"); runs != accepted {
		t.Errorf("%d runs for %d ids", runs, accepted)
	}
}

// A target of an adjudication is one that the operator has configured.
func TestNoTargetIsASpellingOfAnother(t *testing.T) {
	t.Parallel()
	for _, id := range wrongSpellings(1) {
		if s, err := postadjudication.Open(t.Context(), postadjudication.Config{DatabaseURL: "postgres://127.0.0.1/none", Targets: []postadjudication.Target{{Name: id}}}); err == nil || !strings.Contains(err.Error(), "Config.Targets names") || !strings.Contains(err.Error(), "U+") {
			t.Errorf("%+q: %v, %v", id, s, err)
		}
	}
}

// Ids that an earlier version accepted are read, listed, forked, freed and submitted again, and name nothing new.
func TestAnIDThatWasAcceptedOnceIsTakenEverywhere(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Escrow.Answer(rig.Refuses)
	r.StartWorkers()
	for n, id := range wrongSpellings(4) {
		a := rig.Release(n)
		a.Tenant, a.TransactionReceiptID, a.EscrowReference = id, id, id
		a.Held.Minor *= 2
		checkOldID(r, a)
	}
	r.MustAudit()
}

func checkOldID(r *rig.Rig, a postadjudication.Adjudication) {
	r.T.Helper()
	ctx, id := r.T.Context(), a.TransactionReceiptID
	as := r.As(a.Tenant, "user:ada")
	first := submitAsOlderVersion(r, a)
	r.MustNotify(first)
	r.Wait("the letter is listed", func() bool {
		letters, err := as.DeadLetters.List(ctx, deadletter.Query{Filter: deadletter.Filter{Transaction: id, Escrow: id}, Limit: 10})
		if err != nil {
			r.T.Fatalf("%+q: %v", id, err)
		}
		return len(letters.Letters) == 1
	})
	if cases, err := as.Cases.List(ctx, casestatus.Filter{Transaction: id}, "", 10); err != nil || len(cases.Cases) != 1 {
		r.T.Fatalf("%+q: cases %d, %v", id, len(cases.Cases), err)
	}
	if plan, err := as.Bulk.Plan(ctx, bulk.Request{Action: bulk.Fork, Filter: deadletter.Filter{Transaction: id}, Reason: "a test"}); err != nil || plan.Items != 1 {
		r.T.Errorf("%+q: plan %+v, %v", id, plan, err)
	}
	if plan, err := as.Bulk.PlanFree(ctx, bulk.FreeRequest{Filter: casestatus.Filter{Transaction: id}, Reason: "a test", Reference: "desk 1"}); err != nil || plan.Items != 1 {
		r.T.Errorf("%+q: plan to free %+v, %v", id, plan, err)
	}
	if out, err := submitAgain(r, a); err != nil || out.Reply != postadjudication.DeadLettered {
		r.T.Errorf("%+q again: %+v, %v", id, out, err)
	}
	higher, other, unknown := a, a, a
	higher.Generation, other.TransactionReceiptID, unknown.EscrowReference, unknown.TransactionReceiptID = 2, "txr-other", id+"\u200b", "txr-unknown"
	for what, a := range map[string]postadjudication.Adjudication{"a higher generation": higher, "another transaction of the escrow": other} {
		if out, err := r.Submit(ctx, a); err != nil || out.Reply != postadjudication.Created {
			r.T.Errorf("%+q, %s: %+v, %v", id, what, out, err)
		}
	}
	_, err := r.Submit(ctx, unknown)
	checkFieldRefused(r, err, "escrow_reference")
	if _, _, err := as.Keys.Create(ctx, newKey()); err != nil {
		r.T.Errorf("%+q: a key: %v", id, err)
	}
}
