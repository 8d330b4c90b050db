package bulk_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// After an outage all letters of one cause are forked. One person plans it, and another one starts the plan.
func ExamplePlans_Run() {
	svc, stop := rig.Example() // a service that runs, on servers of its own
	defer stop()
	ctx := context.Background()
	ada, bob := svc.As("acme", "user:ada").Bulk, svc.As("acme", "user:bob").Bulk
	for n := range 3 { // one after the other: a plan works on the oldest first
		svc.DeadLetter(n+1, rig.Refuses)
	}

	plan, err := ada.Plan(ctx, bulk.Request{
		Filter: deadletter.Filter{ErrorType: "http.refused"}, Action: bulk.Fork, Reason: "the accounts are open again", Throttle: 100,
	})
	fmt.Println(plan.State, plan.Items, plan.Ready, plan.Money, err)

	_, err = ada.Run(ctx, plan.ID, plan.Hash)
	var second *bulk.SecondPersonError
	fmt.Println("alone:", errors.As(err, &second))
	started, err := bob.Run(ctx, plan.ID, plan.Hash) // the hash says what he has seen
	fmt.Println(started.StartedBy, err)

	done := svc.WaitPlan(plan.ID) // polls Get
	fmt.Println(done.State, done.Progress.Done)
	page, err := bob.Items(ctx, plan.ID, "done", "", 10)
	for _, item := range page.Items {
		fmt.Println(item.Subject, item.Outcome, item.Amount, item.Currency)
	}
	fmt.Println(err)
	// Output:
	// planned 3 3 30.00 EUR <nil>
	// alone: true
	// user:bob <nil>
	// done 3
	// txr_1 done 1000 EUR
	// txr_2 done 1000 EUR
	// txr_3 done 1000 EUR
	// <nil>
}

// A plan that runs can be paused, and goes on where it stopped.
func ExamplePlans_Pause() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	plans := svc.As("acme", "user:ada").Bulk
	svc.DeadLetters(1, 4, rig.Refuses)
	svc.StopWorkers() // nothing works on the plan before it is paused

	plan, err := plans.Plan(ctx, bulk.Request{All: true, Action: bulk.Hold, Reason: "an inquiry"})
	if err != nil {
		panic(err)
	}
	if plan, err = plans.Run(ctx, plan.ID, plan.Hash); err != nil { // a hold takes one person
		panic(err)
	}
	plan, err = plans.Pause(ctx, plan.ID, "ask the lawyers")
	fmt.Println(plan.State, plan.Progress.Pending, err)
	plan, err = plans.Resume(ctx, plan.ID, "they agree")
	fmt.Println(plan.State, err)
	plan, err = plans.Cancel(ctx, plan.ID, "the inquiry is over") // what was done stays done
	fmt.Println(plan.State, plan.ChangedReason, err)

	got, err := plans.Get(ctx, plan.ID)
	fmt.Println(got.State, err)
	list, err := plans.List(ctx, bulk.Filter{State: bulk.Cancelled}, "")
	fmt.Println(len(list.Bulks), err)
	// Output:
	// paused 3 <nil>
	// running <nil>
	// cancelled the inquiry is over <nil>
	// cancelled <nil>
	// 1 <nil>
}

// A person states what the bank's statement shows. The finding waits as a plan for a second person; in an incident
// an approver may start it alone, and everybody gets to know.
func ExamplePlans_PlanFinding() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	plans := svc.As("acme", "user:ada").Bulk
	svc.Escrow.ScriptLookups(rig.GivesNoAnswer)
	letter := svc.DeadLetter(1, rig.GivesNoAnswer)

	plan, err := plans.PlanFinding(ctx, letter.Run, deadletter.Finding{
		Reason: "it was paid", Class: escrow.Executed, Moved: 1000, Reference: "statement 7",
	})
	fmt.Println(plan.Action, plan.People, plan.Spec.Finding.Moved, err)
	alone, err := plans.RunBreakGlass(ctx, plan.ID, plan.Hash, bulk.BreakGlass{Reason: "the others are ill", Incident: "INC-12"})
	fmt.Println(alone.People, alone.Incident, err)
	svc.WaitPlan(plan.ID)
	c, err := svc.Case(ctx, "acme", "txr_1")
	fmt.Println(c.Progression, c.Released, err)
	// Output:
	// finding 2 1000 <nil>
	// 1 INC-12 <nil>
	// settled 1000 <nil>
}

// Both sides withdrew: nothing will be paid, so what is reserved for the case is freed.
func ExamplePlans_PlanFree() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	ada, bob := svc.As("acme", "user:ada").Bulk, svc.As("acme", "user:bob").Bulk
	svc.DeadLetters(1, 3, rig.Refuses)

	plan, err := ada.PlanFree(ctx, bulk.FreeRequest{
		Filter: casestatus.Filter{Transaction: "txr_1"}, Reason: "both sides withdrew", Reference: "mail 3",
	})
	fmt.Println(plan.Action, plan.Items, plan.Money, err)
	if _, err := bob.Run(ctx, plan.ID, plan.Hash); err != nil {
		panic(err)
	}
	svc.WaitPlan(plan.ID)
	c, err := svc.Case(ctx, "acme", "txr_1")
	fmt.Println(c.Progression, c.Reserved, c.Runs[0].Letter, err)

	// A purge may also be worked on by this process alone, which writes to its own Config.Archive if it has one.
	purge, err := ada.Plan(ctx, bulk.Request{All: true, Action: bulk.Purge, Reason: "settled by hand"})
	if err != nil {
		panic(err)
	}
	purge, err = bob.RunHere(ctx, purge.ID, purge.Hash)
	fmt.Println(purge.State, purge.Progress.Done, err)
	// Output:
	// free 1 10.00 EUR <nil>
	// review-needed 0 reconciled <nil>
	// done 1 <nil>
}

// A bank returned a payment days after it settled. The escrow has the sum again, and a higher generation may pay it.
func ExamplePlans_PlanReturns() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	ada, bob := svc.As("acme", "user:ada").Bulk, svc.As("acme", "user:bob").Bulk
	svc.MustSubmit(rig.Release(1))
	svc.WaitNoneLive()

	line := bulk.ReturnedPayment{Transaction: "txr_1", Amount: rig.Euros(400), Reference: "R-2026-11-20-7"}
	file := bulk.ReturnsRequest{Returns: []bulk.ReturnedPayment{line}, Reason: "account closed"}
	planned, err := ada.PlanReturns(ctx, file)
	fmt.Println(planned.Plan.Action, planned.Plan.Items, planned.Plan.Money, err)
	if _, err := bob.Run(ctx, planned.Plan.ID, planned.Plan.Hash); err != nil {
		panic(err)
	}
	svc.WaitPlan(planned.Plan.ID)
	c, err := svc.Case(ctx, "acme", "txr_1")
	fmt.Println(c.Progression, c.Released, c.Returned, c.Committed, err)
	again, err := ada.PlanReturns(ctx, file)
	fmt.Println(again.Plan == nil, again.Known, err)
	// Output:
	// return 1 4.00 EUR <nil>
	// dispute-ready 1000 400 600 <nil>
	// true [R-2026-11-20-7] <nil>
}

// The bank that a case was to be paid by is gone. Two people permit that its next generation names another one.
func ExamplePlans_PlanMove() {
	svc, stop := rig.Example(func(c *postadjudication.Config) { c.PaymentQueues = []string{"payouts"} })
	defer stop()
	ctx := context.Background()
	svc.DeadLetter(1, rig.Refuses)
	next := rig.Release(1)
	next.Generation, next.Target = 2, "queue:payouts"

	refused, err := svc.Submit(ctx, next)
	fmt.Println(refused.Reply, err)
	plan, err := svc.As("acme", "user:ada").Bulk.PlanMove(ctx, bulk.MoveRequest{Transaction: next.TransactionReceiptID, Target: next.Target, Reason: "the bank closed"})
	fmt.Println(plan.Action, plan.People, plan.Spec.Move.From, plan.Spec.Move.Target, err)
	plan, err = svc.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash)
	fmt.Println(plan.State, err)
	made, err := svc.Submit(ctx, next)
	fmt.Println(made.Reply, err)
	// Output:
	// target_changed <nil>
	// move 2 escrow queue:payouts <nil>
	// done <nil>
	// created <nil>
}

// A person sees the plans that wait for them, and refuses one.
func ExamplePlans_Refuse() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	svc.DeadLetters(1, 4, rig.Refuses)
	if _, err := svc.As("acme", "user:ada").Bulk.Plan(ctx, bulk.Request{All: true, Action: bulk.Fork, Reason: "the accounts are open again"}); err != nil {
		panic(err)
	}

	bob := svc.As("acme", "user:bob").Bulk
	waiting, err := bob.List(ctx, bulk.Filter{WaitingForMe: true}, "")
	for _, plan := range waiting.Bulks {
		refused, err := bob.Refuse(ctx, plan.ID, "one of them is not")
		fmt.Println(refused.State, refused.ChangedBy, refused.ChangedReason, err)
	}
	fmt.Println(len(waiting.Bulks), err)
	// Output:
	// refused user:bob one of them is not <nil>
	// 1 <nil>
}
