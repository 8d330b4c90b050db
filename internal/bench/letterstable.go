package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/recourse-dev/recourse/postadjudication"
)

// writeLetters writes, for each filter, the 95th percentiles of the first page and of
// a deep one in each order, and the worst of all.
func writeLetters(out io.Writer, all []result) error {
	var perPage []float64
	for _, r := range all {
		if r.Workload != lettering {
			continue
		}
		if err := writeQuestions(out, r); err != nil {
			return err
		}
		t := table.NewWriter()
		t.SetTitle(fmt.Sprintf("letters, %d; p95 ms of pages of %d, first / deep; listed at %.0f letters/s", r.Tasks, lettersPage, r.Metrics[perSecond]))
		head := table.Row{"filter", "count"}
		for _, s := range postadjudication.LetterSorts {
			head = append(head, string(s))
		}
		t.AppendHeader(head)
		for _, f := range lettersFilters(time.Time{}, "") {
			row := table.Row{f.name, fmt.Sprintf("%.1f", r.Metrics["count|"+f.name])}
			for _, s := range postadjudication.LetterSorts {
				key := f.name + "|" + string(s)
				first, deep := r.Metrics[key+"|first|p95"], r.Metrics[key+"|deep|p95"]
				row, perPage = append(row, fmt.Sprintf("%.1f / %.1f", first, deep)), append(perPage, first, deep)
			}
			t.AppendRow(row)
		}
		if _, err := fmt.Fprintf(out, "%s\n", t.Render()); err != nil {
			return err
		}
	}
	over, worst := 0, 0.0
	for _, ms := range perPage {
		if worst = max(worst, ms); ms > 50 {
			over++
		}
	}
	_, err := fmt.Fprintf(out, "%d of %d over 50 ms; the worst %.1f ms\n\n", over, len(perPage), worst)
	return err
}
