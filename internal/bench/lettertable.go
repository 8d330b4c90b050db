package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

// lettersLimit is how long a page may take, in milliseconds.
const lettersLimit = 50.0

// writeLetters writes, for each filter, the 95th percentiles of the first page and of a
// deep one in each order; then the pages over the limit, with their medians.
func writeLetters(out io.Writer, all []result) error {
	for _, r := range all {
		if r.Workload != lettersWorkload {
			continue
		}
		if err := writeAnalyses(out, r); err != nil {
			return err
		}
		if err := writePages(out, r); err != nil {
			return err
		}
		if err := writeSlow(out, r); err != nil {
			return err
		}
	}
	return nil
}

func writePages(out io.Writer, r result) error {
	t := table.NewWriter()
	t.SetTitle(fmt.Sprintf("letters, %d; p95 ms of pages of %d, first / deep; listed at %.0f letters/s", r.Tasks, lettersPageSize, r.Metrics[perSecond]))
	head := table.Row{"filter", "count"}
	for _, s := range deadletter.Sorts {
		head = append(head, string(s))
	}
	t.AppendHeader(head)
	for _, f := range filterCases(time.Time{}, "") {
		row := table.Row{f.name, fmt.Sprintf("%.1f", r.Metrics["count|"+f.name])}
		for _, s := range deadletter.Sorts {
			key := f.name + "|" + string(s)
			row = append(row, fmt.Sprintf("%.1f / %.1f", r.Metrics[key+"|first|p95"], r.Metrics[key+"|deep|p95"]))
		}
		t.AppendRow(row)
	}
	_, err := fmt.Fprintf(out, "%s\n", t.Render())
	return err
}

// slowPage is one that takes longer than lettersLimit.
type slowPage struct {
	filter, sort, page string
	p50, p95           float64
}

// slowPages returns those of a result, the slowest first, and the number of all pages.
func slowPages(r result) (slow []slowPage, all int) {
	for _, f := range filterCases(time.Time{}, "") {
		for _, s := range deadletter.Sorts {
			for _, page := range []string{"first", "deep"} {
				key := f.name + "|" + string(s) + "|" + page
				one := slowPage{f.name, string(s), page, r.Metrics[key+"|p50"], r.Metrics[key+"|p95"]}
				if all++; one.p95 > lettersLimit {
					slow = append(slow, one)
				}
			}
		}
	}
	slices.SortFunc(slow, func(a, b slowPage) int { return cmp.Compare(b.p95, a.p95) })
	return slow, all
}

func writeSlow(out io.Writer, r result) error {
	slow, all := slowPages(r)
	t := table.NewWriter()
	t.SetTitle(fmt.Sprintf("%d of %d pages over %.0f ms p95", len(slow), all, lettersLimit))
	t.AppendHeader(table.Row{"filter", "order", "page", "p50 ms", "p95 ms"})
	for _, s := range slow {
		t.AppendRow(table.Row{s.filter, s.sort, s.page, fmt.Sprintf("%.1f", s.p50), fmt.Sprintf("%.1f", s.p95)})
	}
	_, err := fmt.Fprintf(out, "%s\n", t.Render())
	return err
}
