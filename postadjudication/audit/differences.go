package audit

import (
	"cmp"
	"fmt"
	"time"
)

// difference is one difference between stored state and receipts.
type difference struct {
	text             string
	stored, recorded string // empty if no two values were compared
}

// differences collects differences between stored state and receipts.
type differences []difference

func (d *differences) compare(what string, stored, recorded any) {
	if stored != recorded {
		d.add(what, fmt.Sprint(stored), fmt.Sprint(recorded))
	}
}

func (d *differences) add(what, stored, recorded string) {
	*d = append(*d, difference{fmt.Sprintf("stored %s %s, the receipts say %s", what, valueOrNothing(stored), valueOrNothing(recorded)), stored, recorded})
}

// fail adds a break for each difference. of names their subject.
func (d differences) fail(a *Report, at breakSubject, of string) {
	for _, one := range d {
		a.failDiffering(InvariantFold, at, one.stored, one.recorded, "%s: %s", of, one.text)
	}
}

// valueOrNothing returns "nothing" for an empty value, so that the sentence stays readable.
func valueOrNothing(value string) string { return cmp.Or(value, "nothing") }

// compareTimes compares to the microsecond, the stored precision.
func (d *differences) compareTimes(what string, row, recorded time.Time) {
	if !row.Equal(recorded) {
		d.add(what, timeText(row), timeText(recorded))
	}
}

// timeText formats a time; empty if it is zero.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}
