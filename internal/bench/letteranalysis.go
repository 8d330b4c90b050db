package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/deadletter/report"
	"github.com/recourse-dev/recourse/settlement"
)

// analysisCase is a query over all letters, with its name in the table.
type analysisCase struct {
	name string
	ask  func(ctx context.Context, s *postadjudication.Service) error
}

func analysisCases(now time.Time) []analysisCase {
	type f = deadletter.Filter
	n := int64(50_000)
	day := 24 * time.Hour
	some := f{Status: "open", Class: "not_executed", Currency: "EUR", MinAmount: &n}
	analyze := func(f f, step report.TimeStep) func(context.Context, *postadjudication.Service) error {
		return func(ctx context.Context, s *postadjudication.Service) error {
			_, err := s.As(lettersTenant, "").DeadLetters.Analyze(ctx, report.Query{Filter: f, Step: step})
			return err
		}
	}
	groups := func(f f, sort report.GroupSort) func(context.Context, *postadjudication.Service) error {
		return func(ctx context.Context, s *postadjudication.Service) error {
			_, err := s.As(lettersTenant, "").DeadLetters.Groups(ctx, report.GroupQuery{Filter: f, Sort: sort, Limit: lettersPageSize})
			return err
		}
	}
	stats := func(f f) func(context.Context, *postadjudication.Service) error {
		return func(ctx context.Context, s *postadjudication.Service) error {
			_, err := s.As(lettersTenant, "").DeadLetters.Stats(ctx, f)
			return err
		}
	}
	search := func(where string) func(context.Context, *postadjudication.Service) error {
		return func(ctx context.Context, s *postadjudication.Service) error {
			_, err := s.As(lettersTenant, "").DeadLetters.Search(ctx, deadletter.Search{Where: where, Limit: lettersPageSize})
			return err
		}
	}
	return []analysisCase{
		{"analysis of all", analyze(f{}, report.Days)}, {"analysis of all by hour", analyze(f{}, report.Hours)},
		{"analysis of refunds", analyze(f{Outcome: settlement.Refund}, report.Days)}, {"analysis of a month", analyze(f{From: now.Add(-60 * day), To: now.Add(-30 * day)}, report.Days)},
		{"analysis of four at once", analyze(some, report.Days)},
		{"groups, largest", groups(f{}, report.LargestGroups)}, {"groups, newest", groups(f{}, report.NewestGroups)}, {"groups of four at once", groups(some, report.LargestGroups)},
		{"statistics of all", stats(f{})}, {"statistics of a family", stats(f{Family: "mailer"})},
		{"search, common", search(`amount.minor > 100000 && error.type.startsWith("http")`)}, {"search, 20000 looked at", search(`error.message.contains("nowhere")`)},
	}
}

// measureAnalyses measures each query several times.
func measureAnalyses(ctx context.Context, s *postadjudication.Service, now time.Time, times int, m metrics) error {
	for _, q := range analysisCases(now) {
		var took []time.Duration
		for range times {
			began := time.Now()
			if err := q.ask(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			took = append(took, time.Since(began))
		}
		m["question|"+q.name+"|p50"], m["question|"+q.name+"|p95"] = milliseconds(percentile(took, .5)), milliseconds(percentile(took, .95))
	}
	return nil
}

// writeAnalyses writes how long each query took.
func writeAnalyses(out io.Writer, r result) error {
	t := table.NewWriter()
	t.SetTitle(fmt.Sprintf("letters as a whole, %d", r.Tasks))
	t.AppendHeader(table.Row{"question", "p50 ms", "p95 ms"})
	for _, q := range analysisCases(time.Time{}) {
		key := "question|" + q.name
		t.AppendRow(table.Row{q.name, fmt.Sprintf("%.1f", r.Metrics[key+"|p50"]), fmt.Sprintf("%.1f", r.Metrics[key+"|p95"])})
	}
	_, err := fmt.Fprintf(out, "%s\n", t.Render())
	return err
}
