package jobs

import (
	"context"
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
	// maxPageBytes bounds the envelopes of a page, and what its receipts say of failures. A page with
	// more of either ends early.
	maxPageBytes = 8 << 20
	// payloadsAtOnce is how many envelopes are read first. Each may be as large as MaxPayload.
	payloadsAtOnce = 8
	// historiesAtOnce is how many histories are read first. Each may have listedReceipts of 16 KiB.
	historiesAtOnce = 4
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
	count, err := l.letters().Count(ctx, q.Filter.Letters())
	if err != nil || q.Limit >= 1 && q.Offset >= 0 && int64(q.Offset) >= count.Total && q.After == "" {
		return Page{Total: count.Total}, err
	}
	for limit := q.Limit; ; {
		found, err := l.letters().List(ctx, deadletter.Query{Filter: q.Filter.Letters(), After: q.After, Skip: q.Offset, Limit: limit})
		if err != nil {
			return Page{}, err
		}
		rows, complete, err := l.readLetters(ctx, found.Letters)
		if err != nil {
			return Page{}, err
		}
		if !complete { // the cursor must be that of the last one that is shown
			limit = len(rows)
			continue
		}
		page := Page{Total: count.Total, Next: found.Next}
		shown := 0
		if page.Jobs, shown, err = l.statuses(ctx, rows, found.Letters); err == nil && shown < len(rows) {
			limit = shown
			continue
		}
		return page, err
	}
}

// readLetters reads letters with their envelopes, in their order. It stops at maxPageBytes, and then
// returns those read so far, at least one.
func (l DeadLetters) readLetters(ctx context.Context, letters []deadletter.Letter) (rows []journal.LetterRow, complete bool, err error) {
	size := 0
	for at, n := 0, payloadsAtOnce; at < len(letters); {
		part := letters[at:min(at+n, len(letters))]
		ids := make([]background.RunID, len(part))
		for i := range part {
			ids[i] = part[i].Run
		}
		found, err := l.s.journal.Letters.ByID(ctx, ids...)
		if err != nil {
			return nil, false, err
		}
		byRun := make(map[background.RunID]journal.LetterRow, len(found))
		for _, row := range found {
			byRun[row.Run.ID] = row
		}
		for i, id := range ids {
			row, readable := byRun[id]
			if size += len(row.Run.Payload); size > maxPageBytes && at+i > 0 {
				return rows[:at+i], false, nil
			}
			if !readable {
				row = journal.LetterRow{}
			}
			rows = append(rows, row)
		}
		at += len(part)
		if size < maxPageBytes/16 { // they are small
			n *= 4
		}
	}
	return rows, true, nil
}

// statuses returns the jobs of letters that are still open. It stops at maxPageBytes of receipts, and
// returns how many rows it has shown, at least one.
func (l DeadLetters) statuses(ctx context.Context, rows []journal.LetterRow, letters []deadletter.Letter) (out []Status, shown int, err error) {
	size := 0
	for n := historiesAtOnce; shown < len(rows); {
		part := rows[shown:min(shown+n, len(rows))]
		trails, err := l.trails(ctx, part)
		if err != nil {
			return nil, 0, err
		}
		for i := range part {
			trail, open := trails[part[i].Case.ID]
			if !open {
				continue
			}
			for _, r := range trail {
				size += len(r.Body)
			}
			if size > maxPageBytes && shown+i > 0 {
				return out, shown + i, nil
			}
			s := statusOf(part[i].Run)
			s.Replays = letters[shown+i].RuleReplays
			if err := addRecent(&s, trail, letters[shown+i].Replays); err != nil {
				return nil, 0, err
			}
			out = append(out, s)
		}
		shown += len(part)
		if size < maxPageBytes/16 { // they are small
			n *= 4
		}
	}
	return out, shown, nil
}

// trails returns the newest receipts of the letters that are still open, by case.
func (l DeadLetters) trails(ctx context.Context, rows []journal.LetterRow) (map[receipts.CaseID][]receipts.Receipt, error) {
	var cases []journal.Case
	for i := range rows {
		if casework.OpenGate(rows[i].Snapshot) == "" {
			cases = append(cases, rows[i].Case)
		}
	}
	if len(cases) == 0 {
		return nil, nil
	}
	return l.s.journal.Receipts.Recent(ctx, l.tenant, cases, listedReceipts)
}

// addRecent adds what the newest receipts of a job say, and its first one.
func addRecent(s *Status, trail []receipts.Receipt, retries int) error {
	h := newHistory()
	runs := 0
	for _, r := range trail {
		if r.Subtype == receipts.Submitted && r.Seq > 1 {
			runs++
		}
	}
	for _, r := range trail {
		if err := h.add(s, r); err != nil {
			return err
		}
		if r.Seq == 1 { // the receipts after it may not be those of the first run
			h.cycle = max(h.cycle, retries-runs+1)
		}
	}
	return nil
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
