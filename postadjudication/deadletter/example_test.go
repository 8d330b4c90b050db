package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// An account is closed: the run dies. Its dead letter is forked once the account is open again.
func ExampleLetters_Fork() {
	svc, stop := rig.Example() // a service that runs, on servers of its own
	defer stop()
	ctx := context.Background()
	letters := svc.As("acme", "user:ada").DeadLetters

	svc.Escrow.Answer(rig.Refuses)
	submitted, err := svc.Submit(ctx, rig.Release(1))
	if err != nil {
		panic(err)
	}
	svc.WaitLetter(submitted.Run)

	svc.Escrow.Script(nil) // the account is open
	forked, err := letters.Fork(ctx, submitted.Run, deadletter.Fork{Reason: "the account is open again"})
	fmt.Println(forked.State, forked.Parent == submitted.Run, err)
	svc.WaitSettled(1)

	_, err = letters.Fork(ctx, submitted.Run, deadletter.Fork{Reason: "once more"}) // a dead letter has one fork at most
	var refused *refusal.RefusedError
	fmt.Println(errors.As(err, &refused), refused.Gate, refused.Letter)
	// Output:
	// pending true <nil>
	// true not_open forked
}

// A program keeps the id of the first run, and retries by it however often the work died.
func ExampleLetters_Retry() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	letters := svc.As("acme", "service:shop").DeadLetters
	first := svc.DeadLetter(1, rig.Refuses).Run // its account is closed

	svc.Escrow.Answer(rig.Refuses) // and still is
	again, err := letters.Retry(ctx, first, "a customer asked")
	fmt.Println(again.Parent == first, err)
	svc.WaitLetter(again.Run)

	svc.Escrow.Script(nil)
	const request = "req_7" // a request that is sent again gets the same fork
	third, err := letters.RetryForRequest(ctx, first, "the account is open again", request)
	fmt.Println(third.Parent == again.Run, err)
	repeated, err := letters.RetryForRequest(ctx, first, "the account is open again", request)
	fmt.Println(repeated.Run == third.Run, err)
	svc.WaitSettled(1)

	lineage, err := svc.Lineage(ctx, "acme", first)
	fmt.Println(lineage.Newest == third.Run, lineage.Replays, err)
	for _, run := range lineage.Runs {
		fmt.Printf("%s %q\n", run.State, run.Letter)
	}
	// Output:
	// true <nil>
	// true <nil>
	// true <nil>
	// true 2 <nil>
	// dead_lettered "forked"
	// dead_lettered "forked"
	// succeeded ""
}

// Letters are found by their properties, and by a condition for what properties do not say.
func ExampleLetters_Search() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	letters := svc.As("acme", "").DeadLetters // reading needs no name
	svc.DeadLetters(1, 4, rig.Refuses)        // transactions txr_1 to txr_3, 10.00 EUR each

	closed := deadletter.Filter{ErrorType: "http.refused"}
	where := `transaction_receipt_id.endsWith("_2") && amount.minor >= 1000`
	fmt.Println(letters.CheckCondition(ctx, where))
	found, err := letters.Search(ctx, deadletter.Search{Filter: closed, Where: where, Limit: 10})
	fmt.Println(len(found.Letters), found.Letters[0].Transaction, found.Complete, err)

	count, err := letters.Count(ctx, closed)
	fmt.Println(count.Total, err)
	var file bytes.Buffer
	exported, err := letters.Export(ctx, closed, `age < duration("1h")`, deadletter.JSONL, &file)
	fmt.Println(exported.Letters, bytes.Count(file.Bytes(), []byte("\n")), err)

	// Pages of one list wait only once until the list has everything that was committed before.
	pages, err := letters.CaughtUp(ctx)
	if err != nil {
		panic(err)
	}
	for after, more := "", true; more; {
		page, err := pages.List(ctx, deadletter.Query{Filter: closed, Sort: deadletter.OldestFirst, After: after, Limit: 2})
		if err != nil {
			panic(err)
		}
		fmt.Println(len(page.Letters), page.More)
		after, more = page.Next, page.More
	}
	runs, _, err := pages.ListRuns(ctx, deadletter.Query{Filter: closed, Limit: 10})
	fmt.Println(len(runs), err)

	// The index of dead letters can be made again from the runs.
	rebuilt, err := svc.As("acme", "user:ada").DeadLetters.Rebuild(ctx, "a restore", nil)
	fmt.Println(rebuilt.Inserted, rebuilt.Updated, rebuilt.Removed, err)
	// Output:
	// <nil>
	// 1 txr_2 true <nil>
	// 3 <nil>
	// 3 3 <nil>
	// 2 true
	// 1 false
	// 3 <nil>
	// 0 0 0 <nil>
}

// An operator reads why a run died and what may be done now, and notes what is known for others and for rules.
func ExampleLetters_Inspect() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	letters := svc.As("acme", "user:ada").DeadLetters
	run := svc.DeadLetter(1, rig.Refuses).Run

	seen, err := letters.Inspect(ctx, run)
	fmt.Println(seen.Letter.ReasonCode, seen.Attempts[0].Error.Message, seen.Letter.AtRisk.Minor, err)
	for _, a := range seen.Actions {
		if a.Allowed {
			fmt.Println(a.Name)
		} else {
			fmt.Println(a.Name, "is refused:", a.RefusedBy)
		}
	}

	held, err := letters.Hold(ctx, run, "evidence for the court") // retention, purges and rules leave it alone
	fmt.Println(held.Held, held.ExpiresAt, err)
	review := true
	marked, err := letters.Mark(ctx, run, deadletter.Mark{Reason: "ask the bank first", ManualReviewRequired: &review})
	fmt.Println(marked.ManualReviewRequired, err)
	_, err = letters.Release(ctx, run, "the court has decided")
	fmt.Println(err)
	notes, err := letters.Annotations(ctx, run)
	fmt.Println(notes.Held, notes.ManualReviewRequired, notes.MarkReason, err)
	// Output:
	// final account closed 1000 <nil>
	// fork
	// retry
	// reconcile
	// lookup
	// hold
	// release is refused: not_held
	// mark
	// purge
	// free
	// adjudicate
	// true <nil> <nil>
	// true <nil>
	// <nil>
	// false true ask the bank first <nil>
}

// An escrow service gave no answer. A person finds out whether it paid.
func ExampleLetters_Reconcile() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	letters := svc.As("acme", "user:ada").DeadLetters
	svc.Escrow.ScriptLookups(rig.GivesNoAnswer) // nor does it answer when it is asked what became of its call
	unpaid, paid := svc.DeadLetter(1, rig.GivesNoAnswer).Run, svc.DeadLetter(2, rig.GivesNoAnswer).Run

	_, err := letters.Lookup(ctx, unpaid)
	var refused *refusal.RefusedError
	fmt.Println("lookup:", errors.As(err, &refused), refused.Gate)

	// The bank's statement shows that nothing was paid. From then on the letter is as any other.
	c, err := letters.Reconcile(ctx, unpaid, deadletter.Finding{
		Reason: "no such payment", Class: escrow.NotExecuted, Reference: "statement 7",
		CallOutstanding: true, // the bank says that it won't execute the call later either
	})
	fmt.Println(c.Progression, c.UnknownOpen, err)

	// That money was moved is stated by two people: one states it, and another one starts the plan.
	_, err = letters.ReconcileCase(ctx, "txr_2", deadletter.Finding{
		Reason: "it was paid", Class: escrow.Executed, Moved: 1000, Reference: "statement 7",
	})
	var second *bulk.SecondPersonError
	fmt.Println("planned:", errors.As(err, &second), second.Plan.Action)
	if _, err := svc.As("acme", "user:bob").Bulk.Run(ctx, second.Plan.ID, second.Plan.Hash); err != nil {
		panic(err)
	}
	svc.WaitStatus("the letter is closed", paid, func(s casestatus.Status) bool { return s.Letter == background.LetterReconciled })
	c, err = svc.Case(ctx, "acme", "txr_2")
	fmt.Println(c.Progression, c.Released, err)
	// Output:
	// lookup: true reconcile_first
	// dispute-ready 0 <nil>
	// planned: true finding
	// settled 1000 <nil>
}

// A filter and a condition can also be checked and applied without a service.
func ExampleParseCondition() {
	filter, err := deadletter.ParseFilter([]byte(`{"error_type": "http.refused", "older_than": "1d"}`))
	fmt.Println(filter.ErrorType, filter.OlderThan, err)
	filter.YoungerThan, err = deadletter.ParseDuration("30d")
	fmt.Println(filter.YoungerThan, err)
	_, err = deadletter.ParseFilter([]byte(`{"error_typ": "http.refused"}`))
	fmt.Println(err)

	condition, err := deadletter.ParseCondition(`amount.minor > 100000 && error.type.startsWith("http.")`)
	if err != nil {
		panic(err)
	}
	matches, err := condition.Matches(context.Background(), deadletter.Letter{
		Amount: &settlement.Money{Minor: 1500_00, Currency: "EUR"}, Error: &background.Failure{Type: "http.refused"},
	})
	fmt.Println(matches, err)
	_, err = condition.Matches(context.Background(), deadletter.Letter{Error: &background.Failure{Type: "http.refused"}})
	fmt.Println("without an amount it is undecided, and not selected:", err != nil)
	// Output:
	// http.refused 1d <nil>
	// 30d <nil>
	// error_typ is not a member of the filter
	// true <nil>
	// without an amount it is undecided, and not selected: true
}
