package settlement_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/settlement"
)

// The status after each fact at each status: "=" for accepted without a change, "x"
// for refused. The payment of an executed is less than the amount asked here.
const transitionTable = `
from          adjudicated re-adjudicated attempt-started retry-scheduled attempt-interrupted executed executed-under-older-key dead-lettered forked   reconciled cancelled closed   freed    returned
none          approved    x              x               x               x                   x        x                        x             x        x          x         x        x        x
pending       approved    x              x               x               x                   partial  =                        x             x        =          x         x        x        =
in-progress   x           x              progress        progress        progress            partial  =                        dispute       x        =          review    x        x        =
review-needed approved    approved       x               x               x                   partial  =                        x             x        =          x         x        =        dispute
approved      x           x              progress        progress        progress            partial  =                        dispute       x        =          review    x        x        =
partial       approved    approved       =               =               =                   partial  =                        dispute       x        =          =         x        =        dispute
settled       x           x              x               =               =                   =        =                        =             x        =          =         x        x        dispute
dispute       x           approved       x               =               =                   partial  =                        =             approved =          =         partial  review   =
refunded      x           x              x               =               =                   =        =                        =             x        =          =         x        x        dispute
`

var byWord = map[string]settlement.Status{
	"none": "", "pending": "pending", "in-progress": "in-progress", "progress": "in-progress", "review-needed": "review-needed",
	"review": "review-needed", "approved": "approved-for-settlement", "partial": "partially-settled", "settled": "settled",
	"dispute": "dispute-ready", "refunded": "refunded",
}

// written is the reason, code and lifecycle that a change of status writes, by fact.
var written = map[settlement.Fact]struct {
	code      settlement.ReasonCode
	reason    string
	lifecycle map[settlement.Lifecycle]settlement.Lifecycle
}{
	"adjudicated":         {"approve", "escrow adjudicated for release", map[settlement.Lifecycle]settlement.Lifecycle{"": "hold-active", "hold-active": "hold-active", "re-escalated": "re-escalated"}},
	"re-adjudicated":      {"approve", "escrow re-adjudicated for release", escalated},
	"attempt-started":     {"approve", "post-adjudication execution in progress", unchanged},
	"retry-scheduled":     {"approve", "post-adjudication execution in progress", unchanged},
	"attempt-interrupted": {"approve", "post-adjudication execution in progress", unchanged},
	"executed":            {"approve", "post-adjudication execution completed in part", map[settlement.Lifecycle]settlement.Lifecycle{"": "", "hold-active": "", "re-escalated": ""}},
	"dead-lettered":       {"escalate", "post-adjudication execution dead-lettered", escalated},
	"forked":              {"approve", "post-adjudication execution forked", escalated},
	"cancelled":           {"request-revision", "post-adjudication execution cancelled", unchanged},
	"freed":               {"request-revision", "reservation freed by hand", unchanged},
	"returned":            {"escalate", "payment returned", escalated},
	"closed":              {"approve", "paid under the operation key of an older generation", map[settlement.Lifecycle]settlement.Lifecycle{"": "", "hold-active": "", "re-escalated": ""}},
}

var (
	escalated = map[settlement.Lifecycle]settlement.Lifecycle{"": "re-escalated", "hold-active": "re-escalated", "re-escalated": "re-escalated"}
	unchanged = map[settlement.Lifecycle]settlement.Lifecycle{"": "", "hold-active": "hold-active", "re-escalated": "re-escalated"}
)

func TestEveryPairOfStatusAndFact(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(transitionTable), "\n")
	facts := strings.Fields(lines[0])[1:]
	if len(facts) != len(settlement.Facts) || len(lines)-1 != len(settlement.Statuses) || settlement.FactsInTable() != len(settlement.Facts) {
		t.Fatalf("%d facts and %d statuses are expected, there are %d (%d in the table) and %d", len(facts), len(lines)-1, len(settlement.Facts), settlement.FactsInTable(), len(settlement.Statuses))
	}
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		for i, fact := range facts {
			for lifecycle := range unchanged {
				checkPair(t, byWord[words[0]], settlement.Fact(fact), lifecycle, words[i+1], false)
				checkPair(t, byWord[words[0]], settlement.Fact(fact), lifecycle, words[i+1], true)
			}
		}
	}
}

// mayKeepReserved are the facts that free the reservation unless the event keeps it.
var mayKeepReserved = map[settlement.Fact]bool{"cancelled": true, "closed": true}

func checkPair(t *testing.T, from settlement.Status, fact settlement.Fact, lifecycle settlement.Lifecycle, want string, kept bool) {
	t.Helper()
	s := settlement.State{
		Outcome: settlement.Release, Progression: from, ReasonCode: "reject", Reason: "before", Lifecycle: lifecycle,
		Generation: 3, Asked: 100, Reserved: 100, Released: 70, Refunded: 5,
	}
	if from.Ended() || from == settlement.None {
		s.Reserved = 0
	}
	generation := 4
	if fact == "returned" {
		generation = 3
	}
	got, effect, err := settlement.Apply(s, settlement.Event{Fact: fact, Outcome: settlement.Release, Generation: generation, Amount: 60, Paid: 40, KeepReserved: kept})
	if want == "x" {
		var r *settlement.Refused
		if !errors.As(err, &r) || *r != (settlement.Refused{From: from, Fact: fact}) || got != s || effect != (settlement.Effect{}) {
			t.Errorf("%s at %q gives %+v, %+v, %v; want it refused", fact, from, got, effect, err)
		}
		return
	}
	if err != nil {
		t.Errorf("%s at %q: %v", fact, from, err)
		return
	}
	expected := s
	if want != "=" {
		w := written[fact]
		expected.Progression, expected.ReasonCode, expected.Reason, expected.Lifecycle = byWord[want], w.code, w.reason, w.lifecycle[lifecycle]
	}
	var money settlement.Effect
	switch {
	case fact == "adjudicated", fact == "re-adjudicated":
		money.Committed = 60 - s.Reserved
		expected.Generation, expected.Asked, expected.Reserved = 4, 60, 60
	case fact == "executed" && want == "=":
		money.Committed, money.Excess = 40, 40
		expected.Released = 110
	case fact == "executed":
		money.Committed = -60
		expected.Moved, expected.Reserved, expected.Released = 40, 0, 110
	case fact == "executed-under-older-key":
		cut := min(s.Reserved, 40)
		money.Committed, money.Excess = 40-cut, 40-cut
		expected.Reserved, expected.Released = s.Reserved-cut, 110
	case fact == "returned":
		money.Committed = -60
		expected.Returned = 60
	case kept && mayKeepReserved[fact]:
	case fact == "cancelled", fact == "closed", fact == "freed":
		money.Committed = -s.Reserved
		expected.Reserved = 0
	}
	if got != expected || effect != money {
		t.Errorf("%s at %q (%q, kept: %t) gives\n%+v, %+v, want\n%+v, %+v", fact, from, lifecycle, kept, got, effect, expected, money)
	}
}

func TestWhatIsNotInTheTableIsRefused(t *testing.T) {
	t.Parallel()
	for _, s := range append([]settlement.Status{"closed", "Settled"}, settlement.Statuses...) {
		for _, f := range append([]settlement.Fact{"", "paid", "Executed"}, settlement.Facts...) {
			_, knownStatus := statusSet()[s]
			if knownStatus && settlement.InTable(f) {
				continue
			}
			var r *settlement.Refused
			if _, _, err := settlement.Apply(settlement.State{Progression: s}, settlement.Event{Fact: f, Recorded: 1}); !errors.As(err, &r) {
				t.Errorf("%q at %q: %v, want it refused", f, s, err)
			}
		}
	}
	if text := (&settlement.Refused{Fact: settlement.Forked}).Error(); text != "settlement: forked is refused at status none" {
		t.Error(text)
	}
}

func statusSet() map[settlement.Status]bool {
	set := map[settlement.Status]bool{}
	for _, s := range settlement.Statuses {
		set[s] = true
	}
	return set
}

func TestOnlySettledAndRefundedAreEnds(t *testing.T) {
	t.Parallel()
	for _, s := range settlement.Statuses {
		if want := s == "settled" || s == "refunded"; s.Ended() != want {
			t.Errorf("%q.Ended() = %v", s, !want)
		}
	}
}
