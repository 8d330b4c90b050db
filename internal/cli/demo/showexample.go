package demo

import (
	"fmt"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// showExample shows one dead letter from its receipts alone: the duration of each attempt and of
// the waits between them.
func (r *Report) showExample(s *screen.Screen) {
	x := r.evidence.exampleRun()
	if x == nil {
		return
	}
	s.Title("One dead letter, receipt by receipt")
	s.Text("%s of %s", x.transaction.id, x.transaction.tenant)
	var rows [][]string
	start := x.trail[0].At
	var due time.Time
	for _, t := range x.trail {
		rows = append(rows, []string{
			strconv.FormatInt(t.Seq, 10), "+" + millis(t.At.Sub(start)), string(t.Subtype), attemptOf(t), describeReceipt(t, due),
		})
		due = t.payload.NextRetryAt
	}
	s.Table([]screen.Column{{Name: "Seq", Right: true}, {Name: "Since submit", Right: true}, {Name: "Receipt"}, {Name: "Attempt", Right: true}, {Name: "What", Wraps: true}}, rows)
}

// exampleRun returns a run that used its whole budget and is known to have moved nothing, else the
// open letter with the most attempts.
func (e *evidence) exampleRun() *runEvidence {
	var best *runEvidence
	for i := range e.runs {
		x := &e.runs[i]
		if x.Letter != background.LetterOpen {
			continue
		}
		if x.ReasonCode == background.ReasonRetryExhausted && x.Class == background.NotExecuted {
			return x
		}
		if best == nil || x.Attempts > best.Attempts {
			best = x
		}
	}
	return best
}

func attemptOf(t parsedReceipt) string {
	switch {
	case t.payload.Attempts > 0:
		return strconv.Itoa(t.payload.Attempts)
	case t.payload.Attempt > 0:
		return strconv.Itoa(t.payload.Attempt)
	}
	return ""
}

// describeReceipt returns the particulars of a receipt. due is the time of the next attempt from
// the receipt before.
func describeReceipt(t parsedReceipt, due time.Time) string {
	p := t.payload
	switch t.Subtype {
	case receipts.Submitted:
		return fmt.Sprintf("%s %s", p.Outcome, settlement.Money{Minor: p.Amount, Currency: p.Currency})
	case receipts.AttemptStarted:
		if due.IsZero() {
			return "recorded before the call"
		}
		return fmt.Sprintf("%s after its time", millis(t.At.Sub(due)))
	case receipts.RetryScheduled:
		return fmt.Sprintf("%s; next in %s", failureText(p), millis(p.NextRetryAt.Sub(t.At)))
	case receipts.DeadLettered:
		return fmt.Sprintf("%s; %s after %d attempts%s, case now %s", failureText(p), p.ReasonCode, p.Attempts, runClass(p), progressionText(p))
	}
	return failureText(p)
}

func failureText(p receipts.Payload) string {
	if p.Error.Type == "" {
		return p.AttemptClass
	}
	return p.AttemptClass + ": " + p.Error.Type
}

// runClass returns the class of the run where it differs from that of its last attempt: a lookup
// before the death may have changed it.
func runClass(p receipts.Payload) string {
	if p.OutcomeClass == p.AttemptClass {
		return ""
	}
	return ", in all " + p.OutcomeClass
}

func progressionText(p receipts.Payload) string {
	if p.Settlement == nil {
		return "unchanged"
	}
	return p.Settlement.ProgressionStatus
}
