package postadjudication

import (
	"bufio"
	"bytes"
	"time"

	"github.com/recourse-dev/recourse/internal/sheet"
	"github.com/recourse-dev/recourse/settlement"
)

// letterColumns are the columns of letters in a sheet.
var letterColumns = []struct {
	name string
	cell func(l *Letter) any
}{
	{"run_id", func(l *Letter) any { return l.Run.String() }},
	{"case_id", func(l *Letter) any { return l.Case.String() }},
	{"family", func(l *Letter) any { return l.Family }},
	{"queue", func(l *Letter) any { return l.Queue }},
	{"job_type", func(l *Letter) any { return l.JobType }},
	{"transaction_receipt_id", func(l *Letter) any { return l.Transaction }},
	{"submission_receipt_id", func(l *Letter) any { return l.Submission }},
	{"escrow_reference", func(l *Letter) any { return l.Escrow }},
	{"outcome", func(l *Letter) any { return string(l.Outcome) }},
	{"amount_minor", func(l *Letter) any { return minorCell(l.Amount) }},
	{"amount_currency", func(l *Letter) any { return currencyCell(l.Amount) }},
	{"at_risk_minor", func(l *Letter) any { return minorCell(l.AtRisk) }},
	{"at_risk_currency", func(l *Letter) any { return currencyCell(l.AtRisk) }},
	{"letter", func(l *Letter) any { return string(l.Status) }},
	{"dead_lettered_at", func(l *Letter) any { return l.DeadAt }},
	{"age_seconds", func(l *Letter) any { return int64(time.Duration(l.Age) / time.Second) }},
	{"reason_code", func(l *Letter) any { return l.ReasonCode }},
	{"outcome_class", func(l *Letter) any { return string(l.Class) }},
	{"attempts", func(l *Letter) any { return l.Attempts }},
	{"error_type", func(l *Letter) any { return l.failure().Type }},
	{"error_code", func(l *Letter) any { return l.failure().Code }},
	{"error_message", func(l *Letter) any { return l.failure().Message }},
	{"signature", func(l *Letter) any { return l.Signature }},
	{"replay_count", func(l *Letter) any { return l.Replays }},
	{"replayed_by", func(l *Letter) any { return l.ReplayedBy }},
	{"last_seen_at", func(l *Letter) any { return l.LastSeenAt }},
	{"held", func(l *Letter) any { return l.Held }},
	{"reprocess_eligible", func(l *Letter) any { return l.Reprocess }},
	{"manual_review_required", func(l *Letter) any { return l.Review }},
	{"expires_at", func(l *Letter) any { return timeCell(l.ExpiresAt) }},
	{"dispatch_reference", func(l *Letter) any { return l.Dispatch }},
	{"can_fork", func(l *Letter) any { return l.CanFork }},
	{"refused_by", func(l *Letter) any { return string(l.RefusedBy) }},
}

func minorCell(m *settlement.Money) any {
	if m == nil {
		return nil
	}
	return m.Minor
}

func currencyCell(m *settlement.Money) any {
	if m == nil {
		return nil
	}
	return m.Currency
}

func timeCell(t *time.Time) any {
	if t == nil {
		return nil
	}
	return *t
}

// csvExporter writes letters as lines of a sheet, whole lines at a time.
type csvExporter struct {
	out   *bufio.Writer
	line  bytes.Buffer
	sheet *sheet.Writer
}

func newCSVExporter(out *bufio.Writer) (*csvExporter, error) {
	e := &csvExporter{out: out}
	names := make([]string, len(letterColumns))
	for i, c := range letterColumns {
		names[i] = c.name
	}
	var err error
	e.sheet, err = sheet.NewWriter(&e.line, names...)
	return e, err
}

func (e *csvExporter) letter(l Letter) error {
	cells := make([]any, len(letterColumns))
	for i, c := range letterColumns {
		cells[i] = c.cell(&l)
	}
	if err := e.sheet.Write(cells...); err != nil {
		return err
	}
	return e.flush()
}

// flush hands over the lines that were written.
func (e *csvExporter) flush() error {
	if err := e.sheet.Flush(); err != nil {
		return err
	}
	defer e.line.Reset()
	return writeUnsplit(e.out, e.line.Bytes())
}

// end writes the header, when there is nothing under it.
func (e *csvExporter) end() error { return e.flush() }
