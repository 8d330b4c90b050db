package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/settlement"
)

// Measured pages have lettersPageSize letters. Each is read a number of times, fewer where
// there are few letters. The deep one is the thousandth, or the one after half of the letters
// where there are fewer; to get its cursor takes longest.
const (
	lettersPageSize = 100
	lettersRepeats  = 20
	deepPage        = 1000
	deepConcurrency = 2 // cursors of deep pages that are computed at once
)

// filterCase is a filter with its name in the table.
type filterCase struct {
	name   string
	filter deadletter.Filter
}

// filterCases has each kind of filter, with common and rare values.
func filterCases(now time.Time, run string) []filterCase {
	type f = deadletter.Filter
	n := func(v int64) *int64 { return &v }
	yes := true
	day := 24 * time.Hour
	return []filterCase{
		{"none", f{}}, {"open", f{Status: "open"}}, {"superseded", f{Status: "superseded"}},
		{"queue", f{Queue: "settlement:1"}}, {"family", f{Family: "mailer"}}, {"type", f{JobType: "mailer"}},
		{"outcome", f{Outcome: settlement.Refund}}, {"reason common", f{ReasonCode: "final"}}, {"reason rare", f{ReasonCode: "poison_pill"}},
		{"class", f{Class: "unknown"}}, {"error type common", f{ErrorType: "http.refused"}}, {"error type rare", f{ErrorType: "http.teapot"}},
		{"text in all", f{ErrorText: "Account"}}, {"text one cause", f{ErrorText: "court order"}}, {"text rare cause", f{ErrorText: "stout"}},
		{"text common number", f{ErrorText: "10"}}, {"text of none", f{ErrorText: "zq"}}, {"text one id", f{ErrorText: "10.0.0.1234"}},
		{"signature", f{Signature: "http.refused: account # is closed"}}, {"signature rare", f{Signature: "http.refused: sanctions screening hit on party #"}},
		{"died in a month", f{From: now.Add(-60 * day), To: now.Add(-30 * day)}}, {"died in an hour", f{From: now.Add(-60 * day), To: now.Add(-60*day + time.Hour)}},
		{"older", f{OlderThan: deadletter.Duration(150 * day)}}, {"younger", f{YoungerThan: deadletter.Duration(3 * day)}},
		{"attempts", f{MinAttempts: n(3)}}, {"attempts rare", f{MinAttempts: n(10)}}, {"amount wide", f{MinAmount: n(100000), MaxAmount: n(300000)}},
		{"amount narrow", f{MinAmount: n(100000), MaxAmount: n(101000), Currency: "EUR"}}, {"currency", f{Currency: "JPY"}},
		{"transaction", f{Transaction: "txr_4242"}}, {"submission", f{Submission: "sub_4242"}}, {"escrow", f{Escrow: "esc_4242"}}, {"dispatch", f{Dispatch: run + ".1"}},
		{"replayed by", f{ReplayedBy: "user:ada"}}, {"replays", f{MinReplays: n(1)}}, {"held", f{Held: &yes}}, {"eligible", f{Reprocess: &yes}}, {"review", f{Review: &yes}},
		{"expiring", f{ExpiringWithin: deadletter.Duration(7 * day)}},
		{"five at once", f{Status: "open", Class: "not_executed", Currency: "EUR", MinAmount: n(50000), ErrorText: "funds"}},
	}
}

// letters is the job that makes letters, or measures lists of them.
func (j job) letters(ctx context.Context) (m metrics, err error) {
	redis, err := asynq.ParseRedisURI(j.RedisURL)
	if err != nil {
		return nil, err
	}
	if j.Preload {
		return nil, makeLetters(ctx, j.DatabaseURL, j.Tasks)
	}
	now := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	s, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: j.DatabaseURL, Redis: redis, Now: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	m = metrics{}
	if err := buildLetterList(ctx, s, j, m); err != nil {
		return nil, err
	}
	first, err := s.As(lettersTenant, "").DeadLetters.List(ctx, deadletter.Query{Limit: 1})
	if err != nil || len(first.Letters) != 1 {
		return nil, errors.Join(errors.New("no letters"), err)
	}
	if err := measureAnalyses(ctx, s, now, min(lettersRepeats, 1+j.Tasks/10_000), m); err != nil {
		return nil, err
	}
	for _, f := range filterCases(now, first.Letters[0].Run.String()) {
		if err := measureLetters(ctx, s, f, min(lettersRepeats, 1+j.Tasks/10_000), m); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return m, nil
}

// buildLetterList builds the list of letters, and measures the time.
func buildLetterList(ctx context.Context, s *postadjudication.Service, j job, m metrics) error {
	began := time.Now()
	if _, err := s.As(lettersTenant, "").DeadLetters.Count(ctx, deadletter.Filter{}); err != nil {
		return err
	}
	m[perSecond] = float64(j.Tasks) / time.Since(began).Seconds()
	return execute(ctx, j.OwnerURL, `VACUUM ANALYZE`) // which the server would do in time
}

// measureLetters measures, for each filter, a count, and in each order the first page of the
// list and a deep one.
func measureLetters(ctx context.Context, s *postadjudication.Service, f filterCase, times int, m metrics) error {
	began := time.Now()
	count, err := s.As(lettersTenant, "").DeadLetters.Count(ctx, f.filter)
	if err != nil {
		return err
	}
	m["count|"+f.name] = milliseconds(time.Since(began))
	deep, err := deepCursors(ctx, s, f, min(int(count.Total)/2, deepPage*lettersPageSize))
	if err != nil {
		return err
	}
	for i, sort := range deadletter.Sorts {
		q := deadletter.Query{Filter: f.filter, Sort: sort, Limit: lettersPageSize}
		key := f.name + "|" + string(sort)
		if err := measurePage(ctx, s, q, key+"|first", times, m); err != nil {
			return fmt.Errorf("first page by %s: %w", sort, err)
		}
		q.After = deep[i]
		if err := measurePage(ctx, s, q, key+"|deep", times, m); err != nil {
			return fmt.Errorf("deep page by %s: %w", sort, err)
		}
	}
	return nil
}

// deepCursors returns, for each order, the cursor of the deep page. Nothing is measured
// meanwhile, so several are computed at once.
func deepCursors(ctx context.Context, s *postadjudication.Service, f filterCase, behind int) ([]string, error) {
	after, errs := make([]string, len(deadletter.Sorts)), make([]error, len(deadletter.Sorts))
	var all sync.WaitGroup
	room := make(chan struct{}, deepConcurrency)
	for i, sort := range deadletter.Sorts {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			after[i], errs[i] = deepCursor(ctx, s, deadletter.Query{Filter: f.filter, Sort: sort}, behind)
		})
	}
	all.Wait()
	return after, errors.Join(errs...)
}

func deepCursor(ctx context.Context, s *postadjudication.Service, q deadletter.Query, behind int) (string, error) {
	for behind >= lettersPageSize {
		q.Limit = min(behind, 1000)
		page, err := s.As(lettersTenant, "").DeadLetters.List(ctx, q)
		if err != nil {
			return "", err
		}
		q.After = page.Next
		behind -= q.Limit
	}
	return q.After, nil
}

func measurePage(ctx context.Context, s *postadjudication.Service, q deadletter.Query, name string, times int, m metrics) error {
	var took []time.Duration
	for range times {
		began := time.Now()
		if _, err := s.As(lettersTenant, "").DeadLetters.List(ctx, q); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	m[name+"|p50"], m[name+"|p95"] = milliseconds(percentile(took, .5)), milliseconds(percentile(took, .95))
	return nil
}
