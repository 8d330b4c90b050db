package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/settlement"
)

// maxProblems is how many bad lines are shown.
const maxProblems = 12

// Show writes the report for people.
func (r *Report) Show(s *screen.Screen) error {
	r.showPlaces(s)
	r.showMoney(s)
	r.showLetters(s)
	r.showReplies(s)
	r.showExample(s)
	r.showTiming(s)
	r.showInvariants(s)
	return s.Err()
}

func (r *Report) showPlaces(s *screen.Screen) {
	s.Title("What became of %d accepted adjudications", r.Submitted)
	row := func(n int, name, meaning string) []string { return []string{strconv.Itoa(n), name, meaning} }
	rows := [][]string{
		row(r.Settled, "settled", "released to the payee, in full"),
		row(r.Refunded, "refunded", "returned to the payer, in full"),
		row(r.PartiallySettled, "partially settled", "the escrow service moved a part; the rest was freed"),
		row(r.OpenLetters, "dead-lettered", "waits for a person; its money stays reserved"),
	}
	if closed := r.DeadLettered - r.OpenLetters; closed > 0 {
		rows = append(rows, row(closed, "dead-lettered", "closed: a newer run of its case replaced it, or it was reconciled"))
	}
	if r.Cancelled > 0 {
		rows = append(rows, row(r.Cancelled, "cancelled", "stopped before money moved"))
	}
	if r.Live > 0 {
		rows = append(rows, row(r.Live, "live", "not ended yet"))
	}
	s.Table([]screen.Column{{Name: "Runs", Right: true}, {Name: "End"}, {Name: "Meaning", Wraps: true}}, rows)
}

// showMoney lists the moved and the reserved money by currency.
func (r *Report) showMoney(s *screen.Screen) {
	places := []string{placeSettled, placeRefunded, placePartial, placeDeadLetter}
	sums := map[string]map[string]int64{}
	for _, x := range r.evidence.runs {
		if sums[x.currency] == nil {
			sums[x.currency] = map[string]int64{}
		}
		amount := x.moved
		switch {
		case x.place() != placeDeadLetter:
		case x.Letter == background.LetterOpen:
			amount = x.reserved
		default:
			amount = 0 // a newer run of the case has it
		}
		sums[x.currency][x.place()] += amount
	}
	var rows [][]string
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		row := []string{currency}
		for _, p := range places {
			row = append(row, amount(sums[currency][p], currency))
		}
		rows = append(rows, row)
	}
	s.Title("Money")
	s.Table([]screen.Column{{Name: "Currency"}, {Name: "Settled", Right: true}, {Name: "Refunded", Right: true}, {Name: "Moved in part", Right: true}, {Name: "Waits for a person", Right: true}}, rows)
}

// amount formats money without its currency; 0 is a dash.
func amount(minor int64, currency string) string {
	if minor == 0 {
		return "-"
	}
	return strings.TrimSuffix(settlement.Money{Minor: minor, Currency: currency}.String(), " "+currency)
}

var reasonTexts = map[string]string{
	"retry_exhausted":    "every attempt failed",
	"final":              "the escrow service refused for good",
	"non_retryable_type": "the policy does not retry this failure",
	"outcome_unknown":    "it is unknown whether money moved",
	"poison_pill":        "its worker was lost each time",
	"request_altered":    "its stored request was changed",
}

// showLetters groups the open dead letters by reason, with their reserved money.
func (r *Report) showLetters(s *screen.Screen) {
	type group struct{ reason, class, failure string }
	counts, risk := map[group]int{}, map[group]map[string]int64{}
	closed := 0
	for _, x := range r.evidence.runs {
		if x.place() != placeDeadLetter {
			continue
		}
		if x.Letter != background.LetterOpen {
			closed++
			continue
		}
		g := group{reason: x.ReasonCode, class: string(x.Class)}
		if x.Error != nil {
			g.failure = x.Error.Type
		}
		counts[g]++
		if risk[g] == nil {
			risk[g] = map[string]int64{}
		}
		risk[g][x.currency] += x.reserved
	}
	if len(counts) == 0 {
		return
	}
	s.Title("Open dead letters by reason, with their reserved money")
	var rows [][]string
	order := slices.SortedFunc(maps.Keys(counts), func(a, b group) int {
		return strings.Compare(a.reason+a.class+a.failure, b.reason+b.class+b.failure)
	})
	for _, g := range order {
		var money []string
		for _, currency := range slices.Sorted(maps.Keys(risk[g])) {
			money = append(money, settlement.Money{Minor: risk[g][currency], Currency: currency}.String())
		}
		rows = append(rows, []string{strconv.Itoa(counts[g]), g.reason, g.failure, g.class, strings.Join(money, "\n")})
	}
	s.Table([]screen.Column{{Name: "Letters", Right: true}, {Name: "Reason"}, {Name: "Last failure"}, {Name: "Known"}, {Name: "Money reserved", Wraps: true}}, rows)
	last := ""
	for _, g := range order {
		if words, ok := reasonTexts[g.reason]; ok && g.reason != last {
			s.Text("%s: %s.", g.reason, words)
		}
		last = g.reason
	}
	if closed > 0 {
		s.Text("%d more are closed: a newer decision replaced them.", closed)
	}
}

var replyMeanings = map[postadjudication.Reply]string{
	postadjudication.Created:          "a new run, committed",
	postadjudication.Deduplicated:     "the same is being executed; nothing runs twice",
	postadjudication.AlreadyExecuted:  "executed before; nothing runs twice",
	postadjudication.Superseded:       "accepted before, and replaced by a newer decision since",
	postadjudication.Cancelled:        "accepted before, and cancelled since",
	postadjudication.CaseEnded:        "another decision has settled or refunded the case",
	postadjudication.DeadLettered:     "it is a dead letter; a person has to fork it",
	postadjudication.ReconcileFirst:   "first find out whether money moved",
	postadjudication.RetryKeyMismatch: "the same generation with different content",
	postadjudication.StaleGeneration:  "a newer decision was accepted before",
	postadjudication.Conflicting:      "contradicts a decision that is being executed",
	postadjudication.TargetChanged:    "would be paid by another escrow service, which two people have to permit",
	postadjudication.ExceedsHeld:      "more than the escrow has free",
	postadjudication.EscrowMismatch:   "the escrow was recorded with another amount or currency",
	postadjudication.Busy:             "another request holds the case; submit again",
}

func (r *Report) showReplies(s *screen.Screen) {
	s.Title("How %d lines were answered", r.Lines)
	var rows [][]string
	for _, reply := range slices.SortedFunc(maps.Keys(r.replies), func(a, b postadjudication.Reply) int { return r.replies[b] - r.replies[a] }) {
		rows = append(rows, []string{strconv.Itoa(r.replies[reply]), string(reply), replyMeanings[reply]})
	}
	if r.badLines > 0 {
		rows = append(rows, []string{strconv.Itoa(r.badLines), "(refused)", "bad input; the other lines were submitted"})
	}
	s.Table([]screen.Column{{Name: "Lines", Right: true}, {Name: "Answer"}, {Name: "Meaning", Wraps: true}}, rows)
	if len(r.problems) == 0 {
		return
	}
	s.Title("Lines refused as bad input")
	rows = nil
	for _, p := range r.problems[:min(len(r.problems), maxProblems)] {
		rows = append(rows, []string{strconv.Itoa(p.Line), cmp.Or(p.Field, "(the line)"), p.Problem})
	}
	s.Table([]screen.Column{{Name: "Line", Right: true}, {Name: "Field"}, {Name: "Problem", Wraps: true}}, rows)
	if more := len(r.problems) - maxProblems; more > 0 {
		s.Text("... and %d more.", more)
	}
}

func (r *Report) showTiming(s *screen.Screen) {
	if len(r.evidence.waits) == 0 {
		return
	}
	late := make([]time.Duration, 0, len(r.evidence.waits))
	early := 0
	for _, g := range r.evidence.waits {
		late = append(late, g.lateness)
		if g.lateness < 0 {
			early++
		}
	}
	slices.Sort(late)
	s.Title("Retries: how late they started")
	s.Table([]screen.Column{{Name: "Retries", Right: true}, {Name: "p50", Right: true}, {Name: "p99", Right: true}, {Name: "Latest", Right: true}, {Name: "Too early", Right: true}},
		[][]string{{strconv.Itoa(len(late)), millis(quantile(late, .5)), millis(quantile(late, .99)), millis(late[len(late)-1]), strconv.Itoa(early)}})
}

// quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func (r *Report) showInvariants(s *screen.Screen) {
	s.Title("Invariants, checked against the escrow service's own ledger")
	var rows [][]string
	broken := 0
	for _, i := range r.invariants {
		verdict := s.Good("ok")
		if !i.ok() {
			broken++
			verdict = s.Bad("BROKEN")
		}
		rows = append(rows, []string{verdict, i.Name, i.Checked})
	}
	s.Table([]screen.Column{{Name: ""}, {Name: "Invariant", Wraps: true}, {Name: "Checked", Right: true}}, rows)
	for _, i := range r.invariants {
		if !i.ok() {
			s.Text("%s %s: %s", s.Bad("broken:"), i.Name, i.Verdict)
		}
	}
	verdict := s.Good("All invariants hold.")
	if broken > 0 {
		verdict = s.Bad(fmt.Sprintf("%d invariants are broken.", broken))
	}
	s.Text("\n%s %d attempts, %d receipts, %d double effects; first attempt after %.1f s, all done in %.1f s.",
		verdict, r.Attempts, r.Receipts, r.DoubleEffects, float64(r.FirstAttemptMS)/1000, float64(r.ElapsedMS)/1000)
}
