package journal

import (
	"errors"
	"testing"

	"github.com/lib/pq"
	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Each row gets its own answer: that of the wide statement if the narrow one refused the
// row or the batch, else that of the narrow one.
func TestEachRowOfABatchGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "rows")
		rows, number := make([]*chainedChange, n), map[*chainedChange]int{}
		may, open := make([]bool, n), make([]bool, n)
		for i := range rows {
			rows[i] = &chainedChange{Change: &Change{}}
			number[rows[i]] = i
			may[i], open[i] = rapid.Bool().Draw(t, "may"), rapid.Bool().Draw(t, "open")
		}
		refusal := rapid.SampledFrom([]error{nil, &pq.Error{Code: "23505"}, &pq.Error{Code: "40P01"}, errors.New("gone")}).Draw(t, "refusal")
		answers := func(of int, err error) func([]*chainedChange) ([]int, error) {
			return func(asked []*chainedChange) ([]int, error) {
				out := make([]int, len(asked))
				for i, r := range asked {
					out[i] = of + number[r]
				}
				return out, err
			}
		}
		got := narrowThenWide(rows, func(r *chainedChange) bool { return may[number[r]] }, answers(100, refusal),
			func(r *chainedChange, _ int) bool { return open[number[r]] }, answers(200, nil))
		for i, a := range got {
			lostAll := may[i] && refusal != nil && refusal.Error() == "gone"
			want := 200 + i
			if may[i] && !open[i] && refusal == nil {
				want = 100 + i
			}
			if lostAll != (a.Err != nil) || !lostAll && a.Value != want {
				t.Fatalf("row %d: %d, %v; want %d", i, a.Value, a.Err, want)
			}
		}
	})
}

// The narrow statement of transitions takes a change of one run and its case by one receipt, and nothing else.
func TestWhichTransitionsTheNarrowStatementTakes(t *testing.T) {
	t.Parallel()
	run := background.RunID{1}
	transition := func(edit func(*chainedChange)) bool {
		snapshot := func() *Snapshot {
			return &Snapshot{Case: Case{Kind: KindSettlement, Submission: "sub", ActiveRun: run, Epoch: 2, State: settlement.State{Outcome: settlement.Release, Generation: 1, Asked: 100}},
				Run: background.Run{ID: run, OutstandingCalls: []int{1}}}
		}
		ch := &chainedChange{Change: &Change{Before: snapshot(), After: snapshot()}, receipts: []receipts.Receipt{{Run: run}}}
		edit(ch)
		return ch.fitsNarrowTransition()
	}
	if !transition(func(ch *chainedChange) {
		ch.After.Run.State, ch.After.Case.State.Progression = background.Running, settlement.Settled
	}) {
		t.Error("a change of the run and of the case's progression is not taken")
	}
	for name, edit := range map[string]func(*chainedChange){
		"two receipts":              func(ch *chainedChange) { ch.receipts = append(ch.receipts, ch.receipts[0]) },
		"a receipt of another run":  func(ch *chainedChange) { ch.receipts[0].Run = background.RunID{2} },
		"of an operation log":       func(ch *chainedChange) { ch.After.Case.Kind = KindOperations },
		"another run changes, too":  func(ch *chainedChange) { ch.Others = []RunChange{{}} },
		"a new run":                 func(ch *chainedChange) { ch.NewRun = &background.Run{} },
		"a reservation":             func(ch *chainedChange) { ch.Reserve = true },
		"another outcome":           func(ch *chainedChange) { ch.After.Case.State.Outcome = settlement.Refund },
		"another generation":        func(ch *chainedChange) { ch.After.Case.State.Generation++ },
		"another amount":            func(ch *chainedChange) { ch.After.Case.State.Asked++ },
		"another active run":        func(ch *chainedChange) { ch.After.Case.ActiveRun = background.RunID{2} },
		"another epoch":             func(ch *chainedChange) { ch.After.Case.Epoch++ },
		"another content":           func(ch *chainedChange) { ch.After.Case.Content = [32]byte{1} },
		"another submission":        func(ch *chainedChange) { ch.After.Case.Submission = "other" },
		"another call outstanding":  func(ch *chainedChange) { ch.After.Run.OutstandingCalls = []int{1, 2} },
		"no more calls outstanding": func(ch *chainedChange) { ch.After.Run.OutstandingCalls = nil },
	} {
		if transition(edit) {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// The narrow statement of openings takes the first case of an escrow that nobody knows and that covers it.
func TestWhichOpeningsTheNarrowStatementTakes(t *testing.T) {
	t.Parallel()
	run := background.RunID{1}
	for name, c := range map[string]struct {
		edit func(*chainedChange)
		want bool
	}{
		"a new escrow that is just enough": {func(*chainedChange) {}, true},
		"no escrow":                        {func(ch *chainedChange) { ch.OpeningEscrow = OpeningEscrow{} }, true},
		"one that was named before":        {func(ch *chainedChange) { ch.OpeningEscrow.Reference = "named" }, false},
		"one that exists":                  {func(ch *chainedChange) { ch.OpeningEscrow.Reference = "known" }, false},
		"one of that name of another":      {func(ch *chainedChange) { ch.OpeningEscrow.Reference, ch.After.Case.Tenant = "known", "other" }, true},
		"more than it holds":               {func(ch *chainedChange) { ch.After.Case.State.Asked++ }, false},
		"two receipts":                     {func(ch *chainedChange) { ch.receipts = append(ch.receipts, ch.receipts[0]) }, false},
	} {
		o := &opener{knownEscrows: newEscrowCache()}
		o.knownEscrows.add(escrowKey{"acme", "known"})
		named := map[escrowKey]struct{}{{"acme", "named"}: {}}
		ch := &chainedChange{
			Change: &Change{
				After:         &Snapshot{Case: Case{Tenant: "acme", Kind: KindSettlement, State: settlement.State{Asked: 100}}, Run: background.Run{ID: run}},
				OpeningEscrow: OpeningEscrow{Reference: "esc", Currency: "EUR", Held: 100},
			}, receipts: []receipts.Receipt{{Run: run}},
		}
		c.edit(ch)
		if got := o.pickNarrowOpen(ch, named); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
		_, takes := named[escrowKey{ch.After.Case.Tenant, ch.OpeningEscrow.Reference}]
		if want := c.want && ch.OpeningEscrow.Reference != "" || name == "one that was named before"; takes != want {
			t.Errorf("%s: the escrow is named: %t", name, takes)
		}
	}
}

// A change that was written alone tells its caller a rule from a lock that another transaction holds, and both from what can't be recorded.
func TestTheErrorOfAChangeThatWasWrittenAlone(t *testing.T) {
	t.Parallel()
	broken := errors.New("gone")
	for _, c := range []struct {
		err, want error
		res       result
	}{
		{nil, nil, exceedsHeld},
		{&pq.Error{Code: "55P03"}, ErrBusy, conflict},
		{ErrFingerprintHeld, ErrFingerprintHeld, conflict},
		{ErrReturnRecorded, ErrReturnRecorded, conflict},
		{&pq.Error{Code: "22003"}, background.ErrUnrecordable, conflict},
		{broken, broken, conflict},
	} {
		res, err := classifyAlone(exceedsHeld, c.err)
		if asItIs := c.err != nil && errors.Is(c.err, c.want) && !errors.Is(c.want, broken); res != c.res || !errors.Is(err, c.want) || asItIs && err.Error() != c.want.Error() {
			t.Errorf("%v: %v, %v", c.err, res, err)
		}
	}
}
