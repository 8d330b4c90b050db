package postadjudication

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/settlement"
)

// Letter is a dead letter in a list.
type Letter struct {
	Run         background.RunID        `json:"run_id"`
	Case        background.CaseID       `json:"case_id"`
	Family      string                  `json:"family"`
	Queue       string                  `json:"queue"`
	JobType     string                  `json:"job_type"`
	Transaction string                  `json:"transaction_receipt_id"`
	Submission  string                  `json:"submission_receipt_id,omitempty"`
	Escrow      string                  `json:"escrow_reference,omitempty"`
	Outcome     settlement.Outcome      `json:"outcome,omitempty"`
	Amount      *settlement.Money       `json:"amount,omitempty"`  // adjudicated
	AtRisk      *settlement.Money       `json:"at_risk,omitempty"` // reserved; open letters only
	Status      background.LetterStatus `json:"letter"`
	DeadAt      time.Time               `json:"dead_lettered_at"`
	Age         Duration                `json:"age"` // in whole seconds
	ReasonCode  string                  `json:"reason_code"`
	Class       background.Class        `json:"outcome_class"`
	Attempts    int                     `json:"attempts"`
	Error       *background.Failure     `json:"error,omitempty"`
	Signature   string                  `json:"signature"`    // equal for letters of the same cause
	Replays     int                     `json:"replay_count"` // forks of it and of its ancestors
	ReplayedBy  string                  `json:"replayed_by,omitempty"`
	LastSeenAt  time.Time               `json:"last_seen_at"` // time of the newest receipt of its case
	Held        bool                    `json:"held"`
	Reprocess   bool                    `json:"reprocess_eligible"`
	Review      bool                    `json:"manual_review_required"`
	ExpiresAt   *time.Time              `json:"expires_at,omitempty"` // when retention may purge it; nil: never
	Dispatch    string                  `json:"dispatch_reference"`
	CanFork     bool                    `json:"can_fork"`
	RefusedBy   Gate                    `json:"refused_by,omitempty"` // why it can't be forked now
	RuleReplays
}

// LetterQuery selects a page of letters.
type LetterQuery struct {
	Filter LetterFilter
	Sort   LetterSort // empty: NewestFirst
	After  string     // LetterPage.Next of the previous page; empty: first page
	Limit  int        // 1 to 1000
}

// LetterPage is a page of letters.
type LetterPage struct {
	Letters []Letter `json:"letters"`
	Next    string   `json:"next,omitempty"` // cursor of the next page
	More    bool     `json:"more"`           // there is a next page
}

// LetterCount counts the letters that a filter selects.
type LetterCount struct {
	Total    int64                             `json:"total"`
	ByStatus map[background.LetterStatus]int64 `json:"by_letter"`
}

const maxLetters = 1000

// List lists dead letters of a tenant. It includes everything that any process committed
// before the call. A letter that changes meanwhile is shown as it is. No letter is omitted or
// repeated between pages, unless its position in the order changes. Purged letters are not
// listed.
func (l Letters) List(ctx context.Context, q LetterQuery) (LetterPage, error) {
	if q.Sort == "" {
		q.Sort = NewestFirst
	}
	order, known := letterOrders[q.Sort]
	switch {
	case q.Limit < 1 || q.Limit > maxLetters:
		return LetterPage{}, &FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", maxLetters)}
	case !known:
		return LetterPage{}, &FieldError{Field: "sort", Problem: fmt.Sprintf("must be one of %v", LetterSorts)}
	}
	if err := validateLetterQuery(l.tenant, q.Filter); err != nil {
		return LetterPage{}, err
	}
	scope, err := cursorScope(l.tenant, q.Filter, q.Sort)
	if err != nil {
		return LetterPage{}, err
	}
	at := letterCursor{asOf: l.s.now()}
	if q.After != "" {
		if at, err = decodeLetterCursor(q.After, scope); err != nil {
			return LetterPage{}, err
		}
	}
	found, more, last, err := l.s.findLetters(ctx, l.tenant, q.Filter, order, at, q.Limit)
	if err != nil {
		return LetterPage{}, err
	}
	page := LetterPage{Letters: make([]Letter, len(found)), More: more}
	for i := range found {
		page.Letters[i] = l.s.letterOf(found[i])
	}
	if err := l.s.addRuleReplays(ctx, l.tenant, page.Letters); err != nil {
		return LetterPage{}, err
	}
	if more {
		page.Next = letterCursor{place: last, asOf: at.asOf}.encode(scope)
	}
	return page, nil
}

// findLetters returns letters after a cursor, and the position of the last one, even if that
// one could not be read.
func (s *Service) findLetters(ctx context.Context, tenant string, f LetterFilter, order search.Order, at letterCursor, limit int) (found []search.Letter, more bool, last search.Position, err error) {
	if err := s.index.CatchUp(ctx); err != nil {
		return nil, false, last, err
	}
	return s.index.Search(ctx, tenant, s.journalFilter(f, at.asOf), order, at.place, limit)
}

// Count returns the exact number of dead letters that a filter selects.
func (l Letters) Count(ctx context.Context, f LetterFilter) (LetterCount, error) {
	out := LetterCount{ByStatus: map[background.LetterStatus]int64{}}
	if err := validateLetterQuery(l.tenant, f); err != nil {
		return out, err
	}
	if err := l.s.index.CatchUp(ctx); err != nil {
		return out, err
	}
	counts, err := l.s.index.Count(ctx, l.tenant, l.s.journalFilter(f, l.s.now()))
	for status, n := range counts {
		out.ByStatus[background.LetterStatus(status)] = n
		out.Total += n
	}
	return out, err
}

func validateLetterQuery(tenant string, f LetterFilter) error {
	if tenant == "" {
		return &FieldError{Field: "tenant", Problem: "must be given"}
	}
	return f.Validate()
}

func (s *Service) letterOf(l search.Letter) Letter {
	r, c := l.Run, l.Case
	out := Letter{
		Run: r.ID, Case: c.ID, Family: r.Family, Queue: r.Queue, JobType: l.JobType, Transaction: c.Subject, Submission: l.Submission, Escrow: l.Escrow,
		Outcome: l.Outcome, Status: r.Letter, DeadAt: r.DeadAt, Age: Duration(max(0, s.now().Sub(r.DeadAt).Truncate(time.Second))),
		ReasonCode: r.Reason, Class: r.Class, Attempts: r.Attempt, Error: r.Failure, Signature: l.Signature, Replays: l.Replays, ReplayedBy: l.ReplayedBy,
		LastSeenAt: l.SeenAt, Held: l.Held, Reprocess: l.Eligible, Review: l.Review, Dispatch: dispatchReference(r),
		RefusedBy: s.settlements.forkGate(journal.Snapshot{Run: r, Case: c}, s.now()),
	}
	out.CanFork = out.RefusedBy == ""
	if l.Currency != "" {
		out.Amount = &settlement.Money{Minor: l.Amount, Currency: l.Currency}
		if r.Letter == background.LetterOpen {
			out.AtRisk = &settlement.Money{Minor: c.State.Reserved, Currency: l.Currency}
		}
	}
	if age, ends := s.retentionOf(r.Family, r.Queue); ends && r.Letter == background.LetterOpen && !l.Held && (c.Kind != journal.KindSettlement || r.UnresolvedUnknowns == 0) {
		at := r.DeadAt.Add(age)
		out.ExpiresAt = &at
	}
	return out
}

// journalFilter converts a validated filter for the journal. Its ages are relative to asOf.
func (s *Service) journalFilter(f LetterFilter, asOf time.Time) search.Filter {
	out := search.Filter{
		Facets: search.FacetFilter{
			Status: string(f.Status), Family: f.Family, Queue: f.Queue, JobType: f.JobType, Outcome: string(f.Outcome), Reason: f.ReasonCode,
			Class: string(f.Class), ErrorType: f.ErrorType, Signature: f.Signature, Currency: f.Currency, ReplayedBy: f.ReplayedBy,
			Held: f.Held, Eligible: f.Reprocess, Review: f.Review, Text: strings.ToLower(f.ErrorText),
		},
		Transaction: f.Transaction, Submission: f.Submission, Escrow: f.Escrow,
		DeadFrom: journalTime(f.From), DeadTo: journalTime(f.To),
		MinAttempts: f.MinAttempts, MaxAttempts: f.MaxAttempts, MinAmount: f.MinAmount, MaxAmount: f.MaxAmount,
		MinReplays: f.MinReplays, MaxReplays: f.MaxReplays, Lifetime: s.retentionOf,
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

// retentionOf returns how long open letters of a queue are kept; false means indefinitely.
func (s *Service) retentionOf(family, queue string) (time.Duration, bool) {
	age := s.retention.ruleFor(family, queue).maxAge
	return age, age > 0
}

// LetterSort is an order of letters. Ties are ordered by run id, so that the order is the same
// on every page.
type LetterSort string

// The orders. The zero sort is NewestFirst.
const (
	NewestFirst   LetterSort = "newest" // by time of death
	OldestFirst   LetterSort = "oldest"
	HighestAmount LetterSort = "highest_amount"
	LowestAmount  LetterSort = "lowest_amount"
	MostAttempts  LetterSort = "most_attempts"
	LastSeen      LetterSort = "last_seen" // by the newest receipt of the case
)

// LetterSorts lists all orders.
var LetterSorts = []LetterSort{NewestFirst, OldestFirst, HighestAmount, LowestAmount, MostAttempts, LastSeen}

var letterOrders = map[LetterSort]search.Order{
	NewestFirst: {Column: search.ByDeath, Descending: true}, OldestFirst: {Column: search.ByDeath},
	HighestAmount: {Column: search.ByAmount, Descending: true}, LowestAmount: {Column: search.ByAmount},
	MostAttempts: {Column: search.ByAttempts, Descending: true}, LastSeen: {Column: search.BySeen, Descending: true},
}

// letterCursor is a position in a list of letters and the time of the first page: the filter's
// ages are relative to it on all pages.
type letterCursor struct {
	place search.Position
	asOf  time.Time
}

const (
	cursorBody = 8 + 8 + 16
	cursorSize = cursorBody + 16
)

// encode formats a cursor with a digest of its body and scope. The digest detects cursors that
// are mixed up or invented by mistake. It is no protection against forgery, which would reveal
// nothing that the filter does not show.
func (c letterCursor) encode(scope []byte) string {
	b := make([]byte, 0, cursorSize)
	b = binary.BigEndian.AppendUint64(b, uint64(c.asOf.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(c.place.Value))
	b = append(b, c.place.Run[:]...)
	sum := cursorDigest(b, scope)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:cursorSize-cursorBody]...))
}

func decodeLetterCursor(text string, scope []byte) (letterCursor, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder ignores line ends.
	if err != nil || strings.ContainsAny(text, "\r\n") || len(b) != cursorSize {
		return letterCursor{}, &FieldError{Field: "after", Problem: "is not a cursor of a list of letters"}
	}
	sum := cursorDigest(b[:cursorBody], scope)
	if string(sum[:cursorSize-cursorBody]) != string(b[cursorBody:]) {
		return letterCursor{}, &FieldError{Field: "after", Problem: "is a cursor of another list: the tenant, filter and sort must be those that it was given for"}
	}
	return letterCursor{
		asOf:  time.UnixMicro(int64(binary.BigEndian.Uint64(b))).UTC(),
		place: search.Position{Value: int64(binary.BigEndian.Uint64(b[8:])), Run: background.RunID(b[16:cursorBody])},
	}, nil
}

func cursorDigest(body, scope []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte("recourse letters 1\x00"))
	h.Write(body)
	h.Write(scope)
	return [sha256.Size]byte(h.Sum(nil))
}

// cursorScope identifies the list that a cursor belongs to.
func cursorScope(tenant string, f LetterFilter, sort LetterSort) ([]byte, error) {
	filter, err := f.Encode()
	if err != nil {
		return nil, err
	}
	name := binary.BigEndian.AppendUint32(nil, uint32(len(tenant)))
	name = append(append(name, tenant...), sort...)
	return append(append(name, 0), filter...), nil
}
