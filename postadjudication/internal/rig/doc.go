// Package rig gives tests of the settlement service a Service on real servers, with an escrow
// service whose every answer the test scripts and whose ledger the test can check.
//
// # A test
//
//	r := rig.New(t).StartWorkers()
//	letter := r.DeadLetter(1, rig.Refuses)
//	fork := r.MustFork(letter)
//	r.WaitNoneLive()
//	if c := r.CaseOf(rig.Release(1)); c.Progression != settlement.Settled {
//		t.Errorf("%+v", c)
//	}
//	r.MustAudit()
//
// New creates a database and starts a Redis; both end with the test. Join opens one more process
// on them. Release and Refund make ordinary adjudications, numbered, each with an escrow of its
// own. Circuit breakers and the lookup loop are off unless the test turns them on, since scripts
// fail on purpose.
//
// # Waiting
//
// A test waits by the Wait methods: each names a condition, asks the service or the database until
// it holds, and fails the test after two minutes. The Count methods say how much the database has of
// all tenants. SQL in a test is for tampering, locks and what one test only asks.
//
// # The end
//
// MustAudit proves what the test left behind: every invariant of the audit, and that the escrow
// service paid each operation key at most once and exactly what the journal says. A test ends
// with it unless it tampers.
//
// # Imports
//
// The package uses what every user of postadjudication can use. The tests that import it are
// black-box, in package postadjudication_test and the like: a white-box test of postadjudication
// can't, since the package imports postadjudication. Used by tests only.
package rig
