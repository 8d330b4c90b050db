package deadletter

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Query selects a page of letters.
type Query struct {
	Filter Filter
	Sort   Sort   // empty: NewestFirst
	After  string // Page.Next of the previous page; empty: first page
	Skip   int    // letters to leave out after that, 0 to MaxSkip: the server reads them, in an order by death only those of the last day
	Limit  int    // 1 to 1000
}

// MaxSkip bounds Query.Skip.
const MaxSkip = 100_000

// Page is a page of letters.
type Page struct {
	Letters []Letter `json:"letters"`
	Next    string   `json:"next,omitempty"` // cursor of the next page
	More    bool     `json:"more"`           // there is a next page
}

// Count counts the letters that a filter selects.
type Count struct {
	Total    int64                             `json:"total"`
	ByStatus map[background.LetterStatus]int64 `json:"by_letter"`
}

const MaxLetters = 1000

// List lists dead letters of a tenant. It includes everything that any process committed
// before the call. A letter that changes meanwhile is shown as it is. No letter is omitted or
// repeated between pages, unless its position in the order changes. Purged letters are not
// listed.
func (l Letters) List(ctx context.Context, q Query) (Page, error) {
	at, err := l.begin(ctx, &q)
	if err != nil {
		return Page{}, err
	}
	found, more, last, err := l.s.Search.Search(ctx, l.tenant, l.s.JournalFilter(q.Filter, at.asOf), Orders[q.Sort], at.place, q.Skip, q.Limit)
	if err != nil {
		return Page{}, err
	}
	page := Page{Letters: make([]Letter, len(found)), More: more}
	for i := range found {
		page.Letters[i] = l.s.LetterOf(found[i])
	}
	if err := l.s.addRuleReplays(ctx, l.tenant, page.Letters); err != nil {
		return Page{}, err
	}
	if more {
		page.Next = at.next(last)
	}
	return page, nil
}

// ListRuns lists the runs of the dead letters that List lists, and the cursor of the next page, which is empty
// if there is none. It reads no run: one that has changed meanwhile may be no dead letter any more.
func (l Letters) ListRuns(ctx context.Context, q Query) (runs []background.RunID, next string, err error) {
	at, err := l.begin(ctx, &q)
	if err != nil {
		return nil, "", err
	}
	found, more, err := l.s.Search.SearchPositions(ctx, l.tenant, l.s.JournalFilter(q.Filter, at.asOf), Orders[q.Sort], at.place, q.Skip, q.Limit)
	for _, p := range found {
		runs = append(runs, p.Run)
	}
	if more && err == nil {
		next = at.next(found[len(found)-1])
	}
	return runs, next, err
}

// listStart is where a list begins.
type listStart struct {
	letterCursor
	scope []byte
}

// next returns the cursor of what follows a place.
func (s listStart) next(last search.Position) string {
	return letterCursor{place: last, asOf: s.asOf}.encode(s.scope)
}

// begin checks a query, completes its Sort, and waits for the index to have all that was committed before.
func (l Letters) begin(ctx context.Context, q *Query) (at listStart, err error) {
	if q.Sort == "" {
		q.Sort = NewestFirst
	}
	switch _, known := Orders[q.Sort]; {
	case q.Limit < 1 || q.Limit > MaxLetters:
		return at, &refusal.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", MaxLetters)}
	case q.Skip < 0 || q.Skip > MaxSkip:
		return at, &refusal.FieldError{Field: "offset", Problem: fmt.Sprintf("must be 0 to %d: go on by the cursor", MaxSkip)}
	case !known:
		return at, &refusal.FieldError{Field: "sort", Problem: fmt.Sprintf("must be one of %v", Sorts)}
	}
	if err := CheckQuery(l.tenant, q.Filter); err != nil {
		return at, err
	}
	if at.scope, err = CursorScope(l.tenant, q.Filter, q.Sort); err != nil {
		return at, err
	}
	at.asOf = l.s.Now()
	if q.After != "" {
		if at.letterCursor, err = decodeLetterCursor(q.After, at.scope); err != nil {
			return at, err
		}
	}
	return at, l.catchUp(ctx)
}

// Count returns the exact number of dead letters that a filter selects.
func (l Letters) Count(ctx context.Context, f Filter) (Count, error) {
	out := Count{ByStatus: map[background.LetterStatus]int64{}}
	if err := CheckQuery(l.tenant, f); err != nil {
		return out, err
	}
	if err := l.catchUp(ctx); err != nil {
		return out, err
	}
	counts, err := l.s.Search.Count(ctx, l.tenant, l.s.JournalFilter(f, l.s.Now()))
	for status, n := range counts {
		out.ByStatus[background.LetterStatus(status)] = n
		out.Total += n
	}
	return out, err
}

// CheckQuery returns a *refusal.FieldError for a missing tenant and each invalid member of a filter.
func CheckQuery(tenant string, f Filter) error {
	if tenant == "" {
		return &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	}
	return f.Validate()
}

// JournalFilter converts a validated filter for the journal. Its ages are relative to asOf.
func (l *Searcher) JournalFilter(f Filter, asOf time.Time) search.Filter {
	out := search.Filter{
		Facets: search.FacetFilter{
			Status: string(f.Status), Family: f.Family, Queue: f.Queue, Outcome: string(f.Outcome), Reason: f.ReasonCode,
			Class: string(f.Class), ErrorType: f.ErrorType, Signature: f.Signature, Currency: f.Currency, ReplayedBy: f.ReplayedBy,
			Held: f.Held, Eligible: f.Reprocess, Review: f.Review, Text: strings.ToLower(f.ErrorText),
		},
		Transaction: f.Transaction, Submission: f.Submission, Escrow: f.Escrow,
		DeadFrom: JournalTime(f.From), DeadTo: JournalTime(f.To),
		MinAttempts: f.MinAttempts, MaxAttempts: f.MaxAttempts, MinAmount: f.MinAmount, MaxAmount: f.MaxAmount,
		MinReplays: f.MinReplays, MaxReplays: f.MaxReplays, Lifetime: l.RetentionOf,
	}
	out.Facets.JobType = f.JobType
	if prefix, is := strings.CutSuffix(f.JobType, "*"); is {
		out.Facets.JobType, out.Facets.JobTypePrefix = "", prefix
	}
	out.Run, out.NotificationNumber, _ = f.dispatchedRun()
	if f.OlderThan != 0 {
		if to := asOf.Add(-time.Duration(f.OlderThan) + time.Microsecond); out.DeadTo.IsZero() || to.Before(out.DeadTo) {
			out.DeadTo = to
		}
	}
	if f.YoungerThan != 0 {
		if from := asOf.Add(-time.Duration(f.YoungerThan) + time.Microsecond); from.After(out.DeadFrom) {
			out.DeadFrom = from
		}
	}
	if f.ExpiringWithin != 0 {
		out.ExpiresUntil = asOf.Add(time.Duration(f.ExpiringWithin))
	}
	return out
}

// Sort is an order of letters. Ties are ordered by run id, so that the order is the same
// on every page.
type Sort string

// The orders. The zero sort is NewestFirst.
const (
	NewestFirst   Sort = "newest" // by time of death
	OldestFirst   Sort = "oldest"
	HighestAmount Sort = "highest_amount"
	LowestAmount  Sort = "lowest_amount"
	MostAttempts  Sort = "most_attempts"
	LastSeen      Sort = "last_seen" // by the newest receipt of the case
)

// Sorts lists all orders.
var Sorts = []Sort{NewestFirst, OldestFirst, HighestAmount, LowestAmount, MostAttempts, LastSeen}

var Orders = map[Sort]search.Order{
	NewestFirst: {Column: search.ByDeath, Descending: true}, OldestFirst: {Column: search.ByDeath},
	HighestAmount: {Column: search.ByAmount, Descending: true}, LowestAmount: {Column: search.ByAmount},
	MostAttempts: {Column: search.ByAttempts, Descending: true}, LastSeen: {Column: search.BySeen, Descending: true},
}

// Reasons why a letter of unknown outcome waits for a person.
const (
	LookupKeyForgotten = casework.LookupKeyForgotten // the escrow service may have forgotten the operation key
	LookupOtherAmount  = casework.LookupOtherAmount  // the moved amount differs from the amount left to move
)

// Lookups describes the lookups of an open letter of unknown outcome by the lookup loop.
type Lookups struct {
	Asked    int          `json:"asked"`
	AskedAt  *time.Time   `json:"asked_at,omitempty"`  // of the last lookup
	Answer   escrow.Class `json:"answer,omitempty"`    // of the last lookup
	Reason   string       `json:"why,omitempty"`       // why the last answer is unknown
	Moved    int64        `json:"moved,omitempty"`     // minor units, if the answer is executed
	AbsentAt *time.Time   `json:"absent_at,omitempty"` // when the answer was first not executed
	NextAt   *time.Time   `json:"next_at,omitempty"`   // of the next lookup; absent before the first
	WaitsFor string       `json:"waits_for,omitempty"` // why no further lookup is made and a person must decide: forgotten, other_amount
}

// lookupsOf returns the lookups of a letter; nil if it needs none, or if remote workers pay.
func (l *Repository) lookupsOf(ctx context.Context, seen journal.Snapshot) (*Lookups, error) {
	if casework.SettlementLetterGate(seen) != "" || seen.Run.UnknownOpen == 0 || escrow.IsRemote(seen.Run.Target) {
		return nil, nil
	}
	r, err := l.Journal.Lookups.Find(ctx, seen.Run.Tenant, seen.Run.ID)
	out := &Lookups{Asked: r.Count, Answer: r.Answer, Reason: r.FailureType, Moved: r.Moved, WaitsFor: r.ManualReason}
	for _, t := range []struct {
		to *(*time.Time)
		at time.Time
	}{{&out.AskedAt, r.LookedUpAt}, {&out.AbsentAt, r.NotExecutedAt}, {&out.NextAt, r.NextAt}} {
		if !t.at.IsZero() {
			*t.to = &t.at
		}
	}
	return out, err
}

// addRuleReplays sets RuleReplays of letters.
func (l *Searcher) addRuleReplays(ctx context.Context, tenant string, letters []Letter) error {
	var forked []background.RunID
	for i := range letters {
		if letters[i].Replays > 0 {
			forked = append(forked, letters[i].Run)
		}
	}
	byRules, err := l.RuleReplays(ctx, tenant, forked)
	for i := range letters {
		letters[i].RuleReplays = byRules[letters[i].Run]
	}
	return err
}
