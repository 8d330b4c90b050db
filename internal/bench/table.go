package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
)

// column is a metric with its title and format.
type column struct{ metric, title, format string }

var (
	speedColumns = []column{
		{perSecond, "tasks/s", "%.0f"}, {ratioToAsynq, "x asynq", "%.2f"}, {ratioToRiver, "x river", "%.2f"},
	}
	latencyColumns = []column{{latencyP50, "p50 ms", "%.1f"}, {latencyP99, "p99 ms", "%.1f"}}
	retryColumns   = []column{{earlyAttempts, "early", "%.0f"}, {gapP50, "gap p50", "%+.1f"}, {gapP99, "gap p99", "%+.1f"}}
	costColumns    = []column{
		{clientCPU, "client s/1000", "%.3f"}, {redisCPU, "redis", "%.3f"}, {postgresCPU, "postgres", "%.3f"},
		{scripts, "scripts", "%.1f"}, {commits, "commits", "%.2f"}, {walBytes, "WAL B", "%.0f"},
		{allocations, "allocations", "%.0f"}, {allocatedKB, "kB", "%.1f"},
	}
	idleColumns = []column{
		{clientShare, "client %", "%.1f"}, {redisShare, "redis %", "%.1f"}, {postgresShare, "postgres %", "%.1f"},
		{pickupP50, "pick-up p50 ms", "%.1f"}, {pickupP99, "p99 ms", "%.1f"},
	}
	flushColumns  = []column{{renotifiedSeconds, "renotified s", "%.2f"}}
	memoryColumns = []column{{residentMB, "MB", "%.0f"}, {anonymousMB, "anonymous MB", "%.1f"}, {peakMB, "peak MB", "%.0f"}}
)

// columns of a workload's table.
func columns(workload string) []column {
	var all []column
	add := func(groups ...[]column) {
		for _, g := range groups {
			all = append(all, g...)
		}
	}
	switch workload {
	case settleWorkload, drainWorkload, jobsWorkload, jobs10Workload, enqueueWorkload:
		add(speedColumns, latencyColumns, costColumns, memoryColumns)
	case deadWorkload:
		add(speedColumns, latencyColumns, retryColumns, costColumns, memoryColumns)
	case precisionWorkload:
		add(latencyColumns, retryColumns, costColumns, memoryColumns)
	case idleWorkload:
		add(idleColumns, memoryColumns)
	case flushWorkload:
		add(flushColumns)
	case memoryWorkload:
		add(memoryColumns)
	}
	return all
}

// writeTables writes a table of medians over the rounds for each workload.
func writeTables(out io.Writer, o options, all []result) error {
	for _, w := range o.workloads {
		if w == lettersWorkload {
			if err := writeLetters(out, all); err != nil {
				return err
			}
			continue
		}
		t := table.NewWriter()
		t.SetTitle(fmt.Sprintf("%s, medians of %d", w, o.rounds))
		head := table.Row{"system", "tasks"}
		for _, c := range columns(w) {
			head = append(head, c.title)
		}
		t.AppendHeader(head)
		for _, s := range o.systems {
			for _, n := range o.sizes(w) {
				if row := medianRow(all, s, w, n); row != nil {
					t.AppendRow(row)
				}
			}
		}
		if _, err := fmt.Fprintf(out, "%s\n\n", t.Render()); err != nil {
			return err
		}
	}
	return nil
}

// medianRow returns nil when the system was not measured with this workload.
func medianRow(all []result, system, workload string, tasks int) table.Row {
	values := map[string][]float64{}
	for _, r := range all {
		if r.System == system && r.Workload == workload && r.Tasks == tasks {
			for name, v := range r.Metrics {
				values[name] = append(values[name], v)
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	row := table.Row{system, tasks}
	for _, c := range columns(workload) {
		cell := ""
		if v := values[c.metric]; len(v) > 0 {
			cell = fmt.Sprintf(c.format, median(v))
		}
		row = append(row, cell)
	}
	return row
}
