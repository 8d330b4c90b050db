package receipts_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// An auditor keeps the heads of yesterday, and checks today that nothing before them was changed.
func ExampleVerifier() {
	id, err := receipts.ParseCaseID("01934b2e-7c00-7abc-8def-0123456789ab")
	if err != nil {
		panic(err)
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rs, head, err := receipts.Chain(id, "acme", receipts.Genesis(id),
		receipts.Draft{Subtype: receipts.HoldPlaced, Actor: "ana", At: noon},
		receipts.Draft{Subtype: receipts.HoldReleased, Actor: "ben", At: noon.Add(time.Hour)},
	)
	if err != nil {
		panic(err)
	}
	yesterday := receipts.Verifier{Expected: receipts.Heads{id: head}}

	_, err = yesterday.Verify(id, rs)
	fmt.Println("untouched:", err)

	_, err = yesterday.Verify(id, rs[:1])
	fmt.Println("tail cut:", err)

	forged := slices.Clone(rs)
	forged[0].Actor = "mallory"
	_, err = yesterday.Verify(id, forged)
	fmt.Println("forged:", err)
	// Output:
	// untouched: <nil>
	// tail cut: receipts: 01934b2e-7c00-7abc-8def-0123456789ab.2: missing, and all up to the expected 2
	// forged: receipts: 01934b2e-7c00-7abc-8def-0123456789ab.1: column actor differs from the body
}

func ExampleHeads_MarshalText() {
	id, err := receipts.ParseCaseID("01934b2e-7c00-7abc-8def-0123456789ab")
	if err != nil {
		panic(err)
	}
	head := receipts.Genesis(id).Next([]byte("a body"))
	text, err := receipts.Heads{id: head}.MarshalText()
	if err != nil {
		panic(err)
	}
	fmt.Print(string(text))
	// Output:
	// recourse heads 1
	// 01934b2e-7c00-7abc-8def-0123456789ab 1 L8cJVCI0zS0DqQ0pAnTlxEVRJl6+fsstgxQF3DqLC70=
}

// The state of every run and dead letter of a case is what its receipts fold to.
func ExampleFold() {
	id, err := receipts.ParseCaseID("01934b2e-7c00-7abc-8def-0123456789ab")
	if err != nil {
		panic(err)
	}
	run, err := receipts.ParseRunID("01934b2e-7c00-7abc-8def-000000000001")
	if err != nil {
		panic(err)
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rs, _, err := receipts.Chain(id, "acme", receipts.Genesis(id),
		receipts.Draft{Run: run, Subtype: receipts.Submitted, Actor: "escrow", At: noon},
		receipts.Draft{Run: run, Subtype: receipts.AttemptStarted, Actor: "worker:1", At: noon.Add(time.Second), Payload: receipts.Payload{Attempt: 1}},
	)
	if err != nil {
		panic(err)
	}
	for n := 1; n <= len(rs); n++ {
		history, err := receipts.Fold(rs[:n])
		if err != nil {
			panic(err)
		}
		fmt.Println(rs[n-1].Subtype, "->", history.Runs[run].State)
	}
	// Output:
	// submitted -> pending
	// attempt-started -> running
}
