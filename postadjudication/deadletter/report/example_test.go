package report_test

import (
	"context"
	"fmt"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// A morning's report: how many letters are open and what is at risk, what happened lately, and the causes.
func ExampleReports() {
	svc, stop := rig.Example() // a service that runs, on servers of its own
	defer stop()
	ctx := context.Background()
	reports := svc.As("acme", "").DeadLetters
	svc.DeadLetters(1, 4, rig.Refuses)    // 10.00 EUR each
	svc.DeadLetters(4, 5, rig.RateLimits) // refused until its attempts ran out

	stats, err := reports.Stats(ctx, deadletter.Filter{})
	fmt.Println(stats.Open, stats.AtRisk, stats.DiedLastHour, err)

	analysis, err := reports.Analyze(ctx, report.Query{Step: report.Hours, Steps: 24})
	fmt.Println(analysis.Letters, analysis.ByReason, err)

	causes, err := reports.Groups(ctx, report.GroupQuery{Limit: 10})
	for _, g := range causes.Groups {
		fmt.Println(g.ErrorType, g.Letters, g.AtRisk)
	}
	fmt.Println(causes.Total, err)
	// Output:
	// 4 40.00 EUR 4 <nil>
	// 4 [{final 3 30.00 EUR} {retry_exhausted 1 10.00 EUR}] <nil>
	// http.refused 3 30.00 EUR
	// http.rate_limited 1 10.00 EUR
	// 2 <nil>
}
