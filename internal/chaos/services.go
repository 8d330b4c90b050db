package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
)

// ledgers are the escrow services of a run. Each payment is in the ledger of one.
type ledgers []*fakeescrow.Service

func (a *testbed) ledgers() ledgers { return ledgers{a.escrow, a.brief} }

// Effects returns what all services have moved.
func (l ledgers) Effects() (out []fakeescrow.Effect) {
	for _, s := range l {
		out = append(out, s.Effects()...)
	}
	return out
}

// AcceptedOpen reports whether a service has accepted a call under an operation key that has not ended.
func (l ledgers) AcceptedOpen(key string) bool {
	return slices.ContainsFunc(l, func(s *fakeescrow.Service) bool { return s.AcceptedOpen(key) })
}

// RestsOpen reports whether a service still has the rest of a payment to move.
func (l ledgers) RestsOpen() bool { return slices.ContainsFunc(l, (*fakeescrow.Service).RestsOpen) }

// Violations returns the effects that are one too many in one service.
func (l ledgers) Violations() (out []fakeescrow.Violation) {
	for _, s := range l {
		out = append(out, s.Violations()...)
	}
	return out
}

// AllCalls returns the calls of all operation keys.
func (l ledgers) AllCalls() map[string][]fakeescrow.Call {
	out := map[string][]fakeescrow.Call{}
	for _, s := range l {
		for key, calls := range s.AllCalls() {
			out[key] = append(out[key], calls...)
		}
	}
	return out
}

// Calls counts them.
func (l ledgers) Calls() (n int) {
	for calls := range maps.Values(l.AllCalls()) {
		n += len(calls)
	}
	return n
}

func briefSettings(s *fakeescrow.Service) worker.Brief {
	return worker.Brief{URL: s.URL(), KeyLifetime: briefLifetime, LookupLifetime: time.Hour, InFlight: briefInFlight}
}

// services are what escrow services do to decisions that are submitted beside the load.
var services = []fault{
	{name: "service-replica-behind", weight: 2, byPeople: true, inject: submitExtra(worker.BriefTarget, "wait,ok", "", "absent,ok")},
	{name: "service-key-forgotten", weight: 2, byPeople: true, inject: submitExtra(worker.BriefTarget, "wait,ok", "", "ok")},
	{name: "service-sum-corrected", weight: 2, byPeople: true, inject: submitExtra("", "whole,legs", worker.IgnoresCancel, "ok")},
}

// someExtra is how many decisions are submitted at once.
const someExtra = 3

// answerTimeout is how long a caller asks one worker after the other before it gives up.
const answerTimeout = 5 * time.Minute

// submitExtra submits decisions to a target whose service answers calls and lookups in a way.
func submitExtra(target, words, executor, lookup string) func(context.Context, *testbed, *rand.Rand) (string, error) {
	return func(ctx context.Context, a *testbed, rng *rand.Rand) (string, error) {
		var names []string
		for range someExtra {
			ad := drawAdjudication(rand.New(rand.NewPCG(rng.Uint64(), 1)), firstExtra+rng.IntN(1<<30))
			ad.Target, ad.Payload = target, fmt.Appendf(nil, `{"simulate":%q,"executor":%q,"lookup":%q}`, words, executor, lookup)
			names = append(names, ad.TransactionReceiptID)
			asked := rand.New(rand.NewPCG(rng.Uint64(), 2))
			a.load.open.Go(func() {
				limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
				defer cancel()
				a.load.untilAnswered(limited, asked, worker.Command{Do: worker.Submit, Tenant: tenant, Adjudication: ad})
			})
		}
		slices.Sort(names)
		return fmt.Sprintf("%s answer %s, lookups %s", names, words, lookup), nil
	}
}
