package rig

import (
	"context"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// AsOnePerson returns a context without identities, in which one person may do what
// takes two elsewhere.
func AsOnePerson(ctx context.Context) context.Context {
	return postadjudication.WithCaller(ctx, postadjudication.Caller{NoKeys: true})
}

// Most tests are about the money, not about who states it: there one person suffices.

// Reconcile states a finding about a run as user:ada.
func (r *Rig) Reconcile(ctx context.Context, tenant string, id background.RunID, f deadletter.Finding) (casestatus.Case, error) {
	return r.Service.As(tenant, "user:ada").DeadLetters.Reconcile(AsOnePerson(ctx), id, f)
}

// ReconcileCase states a finding about a transaction as user:ada.
func (r *Rig) ReconcileCase(ctx context.Context, tenant, transaction string, f deadletter.Finding) (casestatus.Case, error) {
	return r.Service.As(tenant, "user:ada").DeadLetters.ReconcileCase(AsOnePerson(ctx), transaction, f)
}

// Lookup looks a run up as user:ada. It asks again when the escrow service did not answer within the
// time limit: limits are short in tests, and machines slow.
func Lookup(ctx context.Context, r *Rig, tenant string, id background.RunID) (c casestatus.Case, err error) {
	r.T.Helper()
	r.Wait("the lookup is answered", func() bool {
		c, err = r.As(tenant, "user:ada").DeadLetters.Lookup(ctx, id)
		return err == nil || !strings.Contains(err.Error(), "the lookup timed out")
	})
	return c, err
}

// Purge plans as user:ada to purge dead letters of acme, and runs the plan in this process.
func (r *Rig) Purge(ctx context.Context, f deadletter.Filter) (bulk.Plan, error) {
	plans, ctx := r.Service.As("acme", "user:ada").Bulk, AsOnePerson(ctx)
	b, err := plans.Plan(ctx, bulk.Request{Filter: f, Action: bulk.Purge, Reason: "settled by hand"})
	if err != nil {
		return b, err
	}
	return plans.RunHere(ctx, b.ID, b.Hash)
}

// MustPurge is Purge of a number of letters.
func (r *Rig) MustPurge(f deadletter.Filter, letters int64) bulk.Plan {
	r.T.Helper()
	b, err := r.Purge(context.Background(), f)
	if err != nil || b.State != bulk.Done || b.Progress.Done != letters {
		r.T.Fatalf("%+v, %v", b, err)
	}
	return b
}

// DeadLetter creates a dead letter by giving every call the same answer.
func (r *Rig) DeadLetter(n int, answer func(escrow.Call) escrow.Answer) postadjudication.Submitted {
	r.T.Helper()
	r.Escrow.Answer(answer)
	s := r.MustSubmit(Release(n))
	r.WaitNoneLive()
	r.Escrow.Script(nil)
	return s
}

// DeadLetters creates open letters by giving every call the same answer.
func (r *Rig) DeadLetters(from, to int, answer func(escrow.Call) escrow.Answer) (letters []postadjudication.Submitted) {
	r.T.Helper()
	r.Escrow.Answer(answer)
	for n := from; n < to; n++ {
		letters = append(letters, r.MustSubmit(Release(n)))
	}
	r.WaitNoneLive()
	r.Escrow.Script(nil)
	return letters
}

// Letters returns the dead letters that a filter selects, at most 100, and checks their count.
func (r *Rig) Letters(f deadletter.Filter) []deadletter.Letter {
	r.T.Helper()
	page, err := r.As("acme", "").DeadLetters.List(context.Background(), deadletter.Query{Filter: f, Limit: 100})
	if err != nil {
		r.T.Fatalf("%+v: %v", f, err)
	}
	if count, err := r.As("acme", "").DeadLetters.Count(context.Background(), f); err != nil || count.Total != int64(len(page.Letters)) {
		r.T.Errorf("%+v: counted %+v, listed %d, %v", f, count, len(page.Letters), err)
	}
	return page.Letters
}

// LetterStatus returns what became of a dead letter.
func (r *Rig) LetterStatus(of postadjudication.Submitted) background.LetterStatus {
	r.T.Helper()
	st, err := r.Status(context.Background(), "acme", of.Run)
	if err != nil {
		r.T.Fatal(err)
	}
	return st.Letter
}

// ForkRequest is an ordinary fork.
var ForkRequest = deadletter.Fork{Reason: "the escrow service was mended"}

// MustFork forks a dead letter as user:ada.
func (r *Rig) MustFork(letter postadjudication.Submitted) postadjudication.Submitted {
	r.T.Helper()
	s, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, ForkRequest)
	if err != nil {
		r.T.Fatal(err)
	}
	return AsSubmitted(s)
}

// AsSubmitted returns a fork as what a test submitted.
func AsSubmitted(f deadletter.Forked) postadjudication.Submitted {
	return postadjudication.Submitted{Run: f.Run, Case: f.Case, State: f.State}
}
