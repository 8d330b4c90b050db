package postadjudication_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// A run that waits is cancelled at once. Only a higher generation starts the transaction again.
func ExampleTenantCases_Cancel() {
	svc, stop := rig.Example() // a service that runs, on servers of its own
	defer stop()
	ctx := context.Background()
	svc.StopWorkers() // the run waits

	submitted, err := svc.Submit(ctx, rig.Release(1))
	if err != nil {
		panic(err)
	}
	status, err := svc.As("acme", "user:ada").Cases.Cancel(ctx, submitted.Run, "the parties agreed")
	fmt.Println(status.State, err)

	again, err := svc.Submit(ctx, rig.Release(1))
	fmt.Println(again.Reply, again.Actor, again.Reason, err)
	next := rig.Release(1)
	next.Generation = 2
	decided, err := svc.Submit(ctx, next)
	fmt.Println(decided.Reply, err)
	// Output:
	// cancelled <nil>
	// cancelled user:ada the parties agreed <nil>
	// created <nil>
}

// New runs of a tenant get its policy. Runs that exist keep theirs.
func ExampleTenantPolicies_Set() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	policies := svc.As("acme", "user:ada").Policies

	set, err := policies.Set(ctx, postadjudication.PolicyChange{
		Family: postadjudication.Family, Policy: retrypolicy.Policy{MaxRetryAttempts: 5, BaseDelay: time.Second}, Reason: "the bank is slow",
	})
	fmt.Println(set.Version, set.Policy.MaxRetryAttempts, err)

	// Two people change it at the same time: the second one is told.
	version := int64(0)
	_, err = policies.Set(ctx, postadjudication.PolicyChange{
		Family: postadjudication.Family, Policy: retrypolicy.Policy{MaxRetryAttempts: 2}, Reason: "the bank is quick", IfVersion: &version,
	})
	var changed *postadjudication.PolicyVersionError
	fmt.Println(errors.As(err, &changed), changed.Current.Version)

	reset, err := policies.Reset(ctx, postadjudication.PolicyReset{Family: postadjudication.Family, Reason: "the bank is as before"})
	fmt.Println(reset.Version, reset.AsConfigured, err)
	current, err := policies.List(ctx)
	fmt.Println(len(current), current[0].Family, current[0].Policy.MaxRetryAttempts, err)
	history, err := policies.History(ctx, postadjudication.Family, 0, 100)
	for _, v := range history {
		fmt.Println(v.Version, v.Actor, v.Reason)
	}
	fmt.Println(err)
	// Output:
	// 1 5 <nil>
	// true 1
	// 2 true <nil>
	// 1 settlement 3 <nil>
	// 1 user:ada the bank is slow
	// 2 user:ada the bank is as before
	// <nil>
}

// A tenant says how many people it takes to state by hand that money was moved. To lower the number takes two.
func ExampleTenantPeople_Set() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	people := svc.As("acme", "user:ada").People

	p, err := people.Get(ctx)
	fmt.Println(p.People, err)
	_, err = people.Set(ctx, postadjudication.PeopleChange{People: 1, Reason: "ada works alone in august"})
	var planned *bulk.SecondPersonError
	if errors.As(err, &planned) {
		_, err = svc.As("acme", "user:ben").Bulk.Run(ctx, planned.Plan.ID, planned.Plan.Hash)
	}
	fmt.Println(err)
	history, err := people.History(ctx, 0, 100)
	fmt.Println(history[0].People.People, history[0].PlannedBy, history[0].Actor, history[0].Reason, err)
	// Output:
	// 2 <nil>
	// <nil>
	// 1 user:ada user:ben ada works alone in august <nil>
}

// An access key names its holder and what the holder may do. Its token is shown once.
func ExampleTenantKeys_Create() {
	svc, stop := rig.Example()
	defer stop()
	ctx := context.Background()
	keys := svc.As("acme", "user:root").Keys

	_, key, err := keys.Create(ctx, postadjudication.NewKey{
		Principal: "user:ada", Roles: []postadjudication.AccessRole{"operator"}, Reason: "on call",
	})
	fmt.Println(key.Principal, key.Roles, err)
	fmt.Println("one duty:", keys.CheckDuties(ctx, key.Principal, "payouts"))

	// Before it expires a successor takes its place, and both open for a while.
	_, successor, err := keys.Rotate(ctx, postadjudication.KeyRotation{Prefix: key.Prefix, Reason: "each quarter"})
	fmt.Println(successor.Principal, err)
	revoked, err := keys.Revoke(ctx, key.Prefix, "replaced")
	fmt.Println(!revoked.RevokedAt.IsZero(), err)

	// An API records whom it refused what.
	err = svc.RecordRefusal(ctx, postadjudication.AccessRefusal{Tenant: "acme", Actor: "user:ada", Action: "keys.create", Code: "forbidden"})
	fmt.Println(err)
	got, err := keys.Get(ctx, successor.Prefix)
	fmt.Println(got.Principal, err)
	all, err := keys.List(ctx)
	fmt.Println(len(all), err)
	for _, log := range []postadjudication.OperationLog{postadjudication.OperationLogKeys, postadjudication.OperationLogRefusals} {
		entries, err := svc.As("acme", "").OperationLogs.History(ctx, log, 0, 100)
		for _, e := range entries {
			fmt.Println(e.Subtype, e.Actor, e.Reason+e.AskedFor)
		}
		fmt.Println(err)
	}
	// Output:
	// user:ada [operator] <nil>
	// one duty: <nil>
	// user:ada <nil>
	// true <nil>
	// <nil>
	// user:ada <nil>
	// 2 <nil>
	// key-created user:root on call
	// key-created user:root each quarter; its token was given to user:root, who is not its principal
	// key-revoked user:root replaced
	// <nil>
	// access-refused user:ada keys.create
	// <nil>
}

// Before maintenance of its escrow service a tenant pauses its runs. They wait, and spend no attempt.
func ExampleTenantBreakers_Open() {
	svc, stop := rig.Example(rig.OneQueue)
	defer stop()
	ctx := context.Background()
	breakers := svc.As("acme", "user:ada").Breakers

	opened, err := breakers.Open(ctx, escrow.DefaultTarget, "maintenance until noon")
	fmt.Println(opened.State, opened.ByHand, err)
	submitted, err := svc.Submit(ctx, rig.Release(1))
	if err != nil {
		panic(err)
	}
	status, err := svc.Status(ctx, "acme", submitted.Run)
	fmt.Println(status.State, status.WaitsFor, status.Attempts, err)

	released, err := breakers.Release(ctx, escrow.DefaultTarget, "the bank is back")
	fmt.Println(released.State, err)
	svc.WaitState(submitted.Run, background.Succeeded)

	called, err := breakers.Called(ctx) // by running processes: a breaker of another name pauses nothing
	fmt.Println(called, err)
	all, err := breakers.List(ctx)
	fmt.Println(len(all), all[0].State, err)
	history, err := breakers.History(ctx, escrow.DefaultTarget, 0, 100)
	for _, e := range history {
		fmt.Println(e.Subtype, e.Actor, e.Reason)
	}
	fmt.Println(err)
	// Output:
	// open true <nil>
	// pending circuit_breaker 0 <nil>
	// closed <nil>
	// [escrow] <nil>
	// 1 closed <nil>
	// breaker-opened user:ada maintenance until noon
	// breaker-released user:ada the bank is back
	// <nil>
}
