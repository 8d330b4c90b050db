package events_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// The events of a case follow from its receipts, and from nothing else: whoever has the receipts can make them again.
func ExampleOf() {
	id, err := receipts.ParseCaseID("01934b2e-7c00-7abc-8def-0123456789ab")
	if err != nil {
		panic(err)
	}
	run, err := receipts.ParseRunID("01934b2e-7c00-7abc-8def-000000000001")
	if err != nil {
		panic(err)
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	chain, _, err := receipts.Chain(id, "acme", receipts.Genesis(id),
		receipts.Draft{Run: run, Subtype: receipts.Submitted, Actor: "system:escrow", At: noon, Payload: receipts.Payload{RetryKey: "txr_1:release"}},
		receipts.Draft{Run: run, Subtype: receipts.AttemptStarted, Actor: "worker:1", At: noon, Payload: receipts.Payload{Attempt: 1}},
		receipts.Draft{Run: run, Subtype: receipts.HoldPlaced, Actor: "user:ada", At: noon}, // in the trail only
	)
	if err != nil {
		panic(err)
	}
	for _, r := range chain {
		public, err := events.Of(r)
		if err != nil {
			panic(err)
		}
		for _, e := range public {
			fmt.Printf("%s %s %q\n", e.ID, e.Type, e.Data.RetryKey)
		}
	}
	fmt.Println(slices.Contains(events.Types(), events.RunCreated)) // every type, for a webhook that wants some of them
	// Output:
	// 01934b2e-7c00-7abc-8def-0123456789ab.1.0 run.created "txr_1:release"
	// 01934b2e-7c00-7abc-8def-0123456789ab.2.0 run.started ""
	// 01934b2e-7c00-7abc-8def-0123456789ab.2.1 node.started ""
	// true
}
