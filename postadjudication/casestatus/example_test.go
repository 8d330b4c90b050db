package casestatus_test

import (
	"context"
	"fmt"

	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/settlement"
)

// The cases of a tenant that wait for a person, with what each waits for and what may be done.
func ExampleCases_List() {
	svc, stop := rig.Example() // a service that runs, on servers of its own
	defer stop()
	ctx := context.Background()
	svc.DeadLetters(1, 4, rig.Refuses)
	if _, err := svc.Submit(ctx, rig.Release(4)); err != nil {
		panic(err)
	}
	svc.WaitSettled(1)

	waiting := casestatus.Filter{States: []string{string(settlement.DisputeReady)}, Reserved: true}
	cases := svc.As("acme", "").Cases
	for cursor, more := "", true; more; {
		page, err := cases.List(ctx, waiting, cursor, 2)
		if err != nil {
			panic(err)
		}
		for _, c := range page.Cases {
			fmt.Println(c.Transaction, c.Progression, c.WaitsFor, c.Actions)
		}
		fmt.Println(page.Total, page.Money["EUR"].Reserved)
		cursor, more = page.Next, page.More
	}

	c, err := svc.Case(ctx, "acme", "txr_1") // all about one of them
	fmt.Println(len(c.Runs), c.Runs[0].ReasonCode, c.Committed, err)
	// Output:
	// txr_1 dispute-ready dead_letter [fork lookup reconcile hold purge free adjudicate]
	// txr_2 dispute-ready dead_letter [fork lookup reconcile hold purge free adjudicate]
	// 3 3000
	// txr_3 dispute-ready dead_letter [fork lookup reconcile hold purge free adjudicate]
	// 3 3000
	// 1 final 1000 <nil>
}

// Where a tenant's reserved money is: at risk, on its way, and what no list of dead letters shows.
func ExampleCases_Reserved() {
	svc, stop := rig.Example() // a service that runs, on servers of its own
	defer stop()
	svc.DeadLetters(1, 4, rig.Refuses) // 10.00 EUR each
	svc.MustPurge(deadletter.Filter{Transaction: "txr_2"}, 1)

	reserved, err := svc.As("acme", "").Cases.Reserved(context.Background())
	fmt.Println(reserved.All.Money, reserved.OpenLetters.Money, reserved.WithoutLetter.Money, reserved.WaitingFor, err)
	// Output:
	// 30.00 EUR 20.00 EUR 10.00 EUR map[purged_letter:{1 10.00 EUR}] <nil>
}
