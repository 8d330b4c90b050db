package jobs

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// Filter selects open dead letters of jobs. Zero members select all.
type Filter struct {
	Queue     string
	Type      string // with a * at its end: all types that begin so. AdjudicationType selects adjudications, any other no such job
	ErrorType string // of the last failure
	Since     time.Time
	Until     time.Time // exclusive
}

// Letters returns the filter of dead letters that selects the same.
func (f Filter) Letters() deadletter.Filter {
	out := deadletter.Filter{
		Status: background.LetterOpen, Family: Family, Queue: f.Queue, JobType: f.Type, ErrorType: f.ErrorType, From: f.Since, To: f.Until,
	}
	if f.Type == AdjudicationType {
		out.Family, out.JobType = casework.Family, escrow.RemotePrefix+"*"
	}
	return out
}

// Query selects a page of dead letters of jobs, the newest death first.
type Query struct {
	Filter Filter
	After  string // Page.Next of the page before; empty: the first page
	Offset int    // jobs to leave out after that; at most deadletter.MaxSkip
	Limit  int    // 1 to deadletter.MaxLetters
}

// Page is a page of dead-lettered jobs, each with the newest of its history.
type Page struct {
	Jobs  []Status
	Total int64  // that the filter selects
	Next  string // cursor of the next page; empty: there is none
}

const (
	// maxPageBytes bounds the envelopes of a page, and what its receipts say of failures: a job that
	// begins after as many of either is left to the next page. Of each half of a large page it bounds half.
	maxPageBytes = 8 << 20
	// readInHalvesFrom is how many jobs a page has that is read in two halves: fewer take the server less time
	// than another statement.
	readInHalvesFrom = 32
	// listedReceipts bounds the receipts of a job that a list reads.
	listedReceipts = 100
)

// DeadLetters are the dead letters of jobs, by the ids of their jobs.
type DeadLetters struct{ Jobs }

// DeadLetters returns the dead letters of the jobs.
func (j Jobs) DeadLetters() DeadLetters { return DeadLetters{j} }

// List lists the open dead letters of jobs. A job that changes meanwhile is left out, or shown
// as it is. A page whose envelopes are large has fewer jobs than Limit, and a Next.
//
// Errors: *refusal.FieldError for invalid input.
func (l DeadLetters) List(ctx context.Context, q Query) (Page, error) {
	if err := deadletter.CheckQuery(l.tenant, q.Filter.Letters()); err != nil {
		return Page{}, err
	}
	letters, err := l.letters().CaughtUp(ctx)
	if err != nil {
		return Page{}, err
	}
	var count deadletter.Count
	var countErr error
	var counting sync.WaitGroup
	counting.Go(func() { count, countErr = letters.Count(ctx, q.Filter.Letters()) })
	page, err := l.page(ctx, letters, q)
	counting.Wait()
	switch {
	case countErr != nil:
		return Page{}, countErr
	case q.Limit >= 1 && q.Offset >= 0 && int64(q.Offset) >= count.Total && q.After == "": // also behind deadletter.MaxSkip
		return Page{Total: count.Total}, nil
	}
	page.Total = count.Total
	return page, err
}

const (
	// searchPage is how many letters a search reads at once, and maxSearched after how many it ends its page.
	searchPage  = 200
	maxSearched = 5 * searchPage
)

// Search lists the dead letters that a query selects and whose envelopes match. A page ends after Limit matches, or once
// 1,000 letters were read: it may then be empty, and has a Next. Its Total is 0, and Offset is not for it.
//
// Errors: *refusal.FieldError for invalid input.
func (l DeadLetters) Search(ctx context.Context, q Query, matches func(envelope json.RawMessage) bool) (Page, error) {
	if err := deadletter.CheckQuery(l.tenant, q.Filter.Letters()); err != nil {
		return Page{}, err
	}
	letters, err := l.letters().CaughtUp(ctx)
	if err != nil {
		return Page{}, err
	}
	out := Page{Next: q.After}
	for searched := 0; searched < maxSearched && len(out.Jobs) < q.Limit; {
		runs, next, err := letters.ListRuns(ctx, deadletter.Query{Filter: q.Filter.Letters(), After: out.Next, Limit: searchPage})
		if err != nil {
			return Page{}, err
		}
		found, read, err := l.matching(ctx, runs, matches, q.Limit-len(out.Jobs))
		if err == nil && read < len(runs) { // the cursor must be that of the last one that was read
			_, next, err = letters.ListRuns(ctx, deadletter.Query{Filter: q.Filter.Letters(), After: out.Next, Limit: read})
		}
		if err != nil {
			return Page{}, err
		}
		searched += read
		if out.Jobs, out.Next = append(out.Jobs, found...), next; next == "" {
			break
		}
	}
	return out, nil
}

// matching returns the jobs of runs whose envelopes match, at most a number of them, and how many runs it has read for
// that: all, unless there are more matches, or they are large.
func (l DeadLetters) matching(ctx context.Context, runs []background.RunID, matches func(json.RawMessage) bool, most int) ([]Status, int, error) {
	if len(runs) == 0 {
		return nil, 0, nil
	}
	listed, err := l.s.journal.Letters.ListedRuns(ctx, runs, maxPageBytes)
	if err != nil {
		return nil, 0, err
	}
	var found []background.RunID
	var places []int
	for i := range listed {
		if len(found) < most && matches(statusOf(listed[i].Run).Payload) {
			found, places = append(found, runs[i]), append(places, i)
		}
	}
	read := len(listed)
	if len(found) == 0 {
		return nil, read, nil
	}
	out, shown, err := l.readStatuses(ctx, found, maxPageBytes)
	if shown < len(found) || len(found) == most {
		read = places[shown-1] + 1
	}
	return out, read, err
}

// page reads a page without the total.
func (l DeadLetters) page(ctx context.Context, letters deadletter.Letters, q Query) (Page, error) {
	for limit := q.Limit; ; {
		runs, next, err := letters.ListRuns(ctx, deadletter.Query{Filter: q.Filter.Letters(), After: q.After, Skip: q.Offset, Limit: limit})
		if err != nil || len(runs) == 0 {
			return Page{}, err
		}
		page := Page{Next: next}
		read := 0
		if page.Jobs, read, err = l.statuses(ctx, runs); err != nil || read == len(runs) {
			return page, err
		}
		limit = read // the cursor must be that of the last one that is shown
	}
}

// statuses returns the jobs of runs that are open dead letters, up to maxPageBytes. It also returns how many
// runs it has read, at least one. The halves of a large page are read at the same time, each up to half of
// maxPageBytes.
func (l DeadLetters) statuses(ctx context.Context, runs []background.RunID) (out []Status, read int, err error) {
	if len(runs) < readInHalvesFrom {
		return l.readStatuses(ctx, runs, maxPageBytes)
	}
	half := len(runs) / 2
	var second []Status
	var secondRead int
	var secondErr error
	var reading sync.WaitGroup
	reading.Go(func() { second, secondRead, secondErr = l.readStatuses(ctx, runs[half:], maxPageBytes/2) })
	out, read, err = l.readStatuses(ctx, runs[:half], maxPageBytes/2)
	reading.Wait()
	if err != nil || read < half {
		return out, read, err
	}
	return append(out, second...), half + secondRead, secondErr
}

// readStatuses is statuses, one run after the other, up to maxBytes.
func (l DeadLetters) readStatuses(ctx context.Context, runs []background.RunID, maxBytes int64) (out []Status, read int, err error) {
	listed, err := l.s.journal.Letters.ListedRuns(ctx, runs, maxBytes)
	if err != nil {
		return nil, 0, err
	}
	var open []int // of listed
	var cases []journal.Case
	var forks []background.RunID
	for i := range listed {
		if casework.OpenGate(listed[i].Snapshot) != "" {
			continue
		}
		open, cases = append(open, i), append(cases, listed[i].Case)
		if listed[i].Replays > 0 {
			forks = append(forks, runs[i])
		}
	}
	byRules, err := l.s.letters.RuleReplays(ctx, l.tenant, forks)
	if err != nil {
		return nil, 0, err
	}
	trails, err := l.s.journal.Receipts.Recent(ctx, l.tenant, cases, listedReceipts, maxBytes)
	if err != nil {
		return nil, 0, err
	}
	out = make([]Status, len(trails))
	for n, trail := range trails {
		r := &listed[open[n]]
		out[n] = statusOf(r.Run)
		out[n].Replays = byRules[r.Run.ID]
		if err := addRecent(&out[n], trail, r.Replays, generationOf(&r.Run)); err != nil {
			return nil, 0, err
		}
	}
	if len(trails) < len(open) {
		return out, open[len(trails)], nil
	}
	return out, len(listed), nil
}

// addRecent adds what the newest receipts of a job say, and its first one. Runs of other generations than the
// given one, if there is one, are not those of the job.
func addRecent(s *Status, trail []receipts.Receipt, retries, generation int) error {
	others := map[background.RunID]bool{}
	runs, first := 0, false
	for _, r := range trail {
		if r.Subtype != receipts.Submitted {
			continue
		}
		if generation > 0 {
			p, err := r.Known()
			if err != nil {
				return err
			}
			others[r.Run] = p.Generation != generation
		}
		if !others[r.Run] {
			runs, first = runs+1, first || r.Seq == 1
		}
	}
	h := newHistory()
	if !first { // the receipts of the first runs were left out
		h.cycle = max(0, retries+1-runs)
	}
	for _, r := range trail {
		if others[r.Run] {
			continue
		}
		if err := h.add(s, r); err != nil {
			return err
		}
		if r.Seq == 1 { // the receipts after it may not be those of the first run
			h.cycle = max(h.cycle, retries+2-runs)
		}
	}
	return nil
}

// generationOf returns the generation of an adjudication; 0 for a job of another type.
func generationOf(r *background.Run) int {
	if !isAdjudication(r) || r.Terms == nil {
		return 0
	}
	return r.Terms.Generation
}

// addReplays adds how often a rule has replayed a job.
func (j Jobs) addReplays(ctx context.Context, s *Status) error {
	if !s.Retried {
		return nil
	}
	byRules, err := j.s.letters.RuleReplays(ctx, j.tenant, []background.RunID{s.Run})
	s.Replays = byRules[s.Run]
	return err
}

// Replays is how often a rule has replayed a job.
type Replays = casestatus.RuleReplays

// Stats are statistics of the open dead letters of jobs.
type Stats struct {
	Total       int64
	ByQueue     map[string]int64
	ByType      map[string]int64
	ByErrorType map[string]int64
	OldestAt    time.Time // of death; zero: there is none
	NewestAt    time.Time
	MaxAge      time.Duration // how long they are kept at most
	MaxCount    int           // of each queue
	NextPruneAt time.Time     // zero: this process does not prune
}

// Stats counts the open dead letters of jobs: exactly, and all at one moment. The oldest and the newest
// are read afterwards.
func (l DeadLetters) Stats(ctx context.Context) (Stats, error) {
	s := l.s.letters
	out := Stats{ByQueue: map[string]int64{}, ByType: map[string]int64{}, ByErrorType: map[string]int64{}}
	out.MaxAge, out.MaxCount = l.s.kept.Kept(Family, "")
	out.NextPruneAt = l.s.kept.NextAt()
	all := Filter{}.Letters()
	if err := deadletter.CheckQuery(l.tenant, all); err != nil {
		return out, err
	}
	if err := s.Search.CatchUp(ctx); err != nil {
		return out, err
	}
	tallies, err := s.Search.Tally(ctx, l.tenant, s.JournalFilter(all, s.Now()))
	if err != nil {
		return out, err
	}
	for _, t := range tallies {
		out.Total += t.Letters
		out.ByQueue[t.Queue] += t.Letters
		out.ByType[t.JobType] += t.Letters
		out.ByErrorType[t.ErrorType] += t.Letters
	}
	for sort, at := range map[deadletter.Sort]*time.Time{deadletter.OldestFirst: &out.OldestAt, deadletter.NewestFirst: &out.NewestAt} {
		page, err := l.letters().List(ctx, deadletter.Query{Filter: all, Sort: sort, Limit: 1})
		if err != nil {
			return out, err
		}
		if len(page.Letters) > 0 {
			*at = page.Letters[0].DeadAt
		}
	}
	return out, nil
}
