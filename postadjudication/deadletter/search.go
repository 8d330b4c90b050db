package deadletter

import (
	"context"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Search asks for letters that match a filter and meet a condition.
type Search struct {
	Filter Filter
	Where  string // see Condition; empty: all letters of the filter
	Sort   Sort   // NewestFirst when empty
	After  string // Found.Next of the page before; empty for the first
	Limit  int    // 1 to 1000
	Scan   int    // maximum number of letters to scan, 1 to 100000; 20000 when 0
}

// Found is the part of a search's result that was found within its limits.
type Found struct {
	Letters   []Letter `json:"letters"`
	Scanned   int      `json:"scanned"`        // letters scanned by this call
	Undecided int      `json:"undecided"`      // scanned letters left out because the condition was undecided
	Complete  bool     `json:"complete"`       // no letters are left to scan
	Next      string   `json:"next,omitempty"` // After of the next search; empty if Complete
}

const (
	maxScan       = 100_000
	defaultScan   = 20_000
	scanPage      = 500
	scanTimeLimit = 3 * time.Second
)

// Search scans the letters of a tenant that match a filter, in order, and returns those
// that meet a condition. It stops after Limit matches, Scan letters or three seconds. Complete
// reports whether all letters were scanned; else Next continues after the last scanned letter.
// A letter for which the condition is undecided is left out and counted.
//
// Errors: a *refusal.FieldError for bad input, and with a condition ErrTooManyConditions while the
// maximum of conditions is running.
func (o Letters) Search(ctx context.Context, q Search) (Found, error) {
	out := Found{Letters: []Letter{}}
	if q.Scan == 0 {
		q.Scan = defaultScan
	}
	if q.Scan < 1 || q.Scan > maxScan {
		return out, &refusal.FieldError{Field: "scan", Problem: fmt.Sprintf("must be 1 to %d", maxScan)}
	}
	if q.Limit < 1 || q.Limit > MaxLetters {
		return out, &refusal.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", MaxLetters)}
	}
	w, err := o.s.newLetterScan(ctx, o.tenant, q.Filter, q.Where, q.Sort, q.After)
	if err != nil {
		return out, err
	}
	defer w.where.Done()
	budget := time.NewTimer(scanTimeLimit)
	defer budget.Stop()
	for {
		l, matches, err := w.next(ctx, min(scanPage, q.Scan-w.scanned))
		if err != nil {
			return Found{}, err
		}
		if matches {
			out.Letters = append(out.Letters, l)
		}
		stop := len(out.Letters) == q.Limit || w.scanned >= q.Scan
		select {
		case <-budget.C:
			stop = true
		default:
		}
		if out.Complete = w.done(); out.Complete || stop {
			out.Scanned, out.Undecided = w.scanned, w.undecided
			break
		}
	}
	if !out.Complete {
		out.Next = w.at.encode(w.list)
	}
	return out, nil
}

// letterScan iterates over the letters of a filter, in order and page by page, and returns
// those that meet a condition.
type letterScan struct {
	index  *Searcher
	tenant string
	filter Filter
	order  search.Order
	where  *LimitedCondition // nil: all
	list   []byte            // scope of its cursors

	at        letterCursor // after the last scanned letter
	page      []search.Letter
	last      search.Position // of the page
	drained   bool            // the index was brought up to date
	more      bool            // pages follow
	scanned   int
	undecided int
}

// newLetterScan starts a scan. The caller must call Done of its condition.
func (l *Searcher) newLetterScan(ctx context.Context, tenant string, f Filter, where string, sort Sort, after string) (*letterScan, error) {
	if sort == "" {
		sort = NewestFirst
	}
	order, known := Orders[sort]
	if !known {
		return nil, &refusal.FieldError{Field: "sort", Problem: fmt.Sprintf("must be one of %v", Sorts)}
	}
	if err := CheckQuery(tenant, f); err != nil {
		return nil, err
	}
	w := &letterScan{index: l, tenant: tenant, filter: f, order: order, at: letterCursor{asOf: l.Now()}, more: true}
	list, err := CursorScope(tenant, f, sort)
	if err != nil {
		return nil, err
	}
	w.list = append(append(list, "\x00where "...), where...)
	if after != "" {
		if w.at, err = decodeLetterCursor(after, w.list); err != nil {
			return nil, err
		}
	}
	w.where, err = l.Limiter.Condition(ctx, tenant, where)
	return w, err
}

// done reports whether all letters were scanned.
func (w *letterScan) done() bool { return len(w.page) == 0 && !w.more }

// next scans the next letter; limit is the size of a page. It returns false if the letter
// does not meet the condition, or if there is none.
func (w *letterScan) next(ctx context.Context, limit int) (Letter, bool, error) {
	if len(w.page) == 0 {
		if err := w.readPage(ctx, limit); err != nil || len(w.page) == 0 {
			return Letter{}, false, err
		}
	}
	found := w.page[0]
	l := w.index.LetterOf(found)
	if w.where != nil {
		matches, err := w.where.Matches(ctx, l)
		switch {
		case ctx.Err() != nil:
			return Letter{}, false, ctx.Err()
		case err != nil:
			w.undecided++
		}
		w.advance(found.Position)
		return l, matches && err == nil, nil
	}
	w.advance(found.Position)
	return l, true, nil
}

// advance moves the cursor to position, and at the end of a page past those of its rows that
// are not letters any more.
func (w *letterScan) advance(place search.Position) {
	w.scanned++
	w.at.place = place
	if w.page = w.page[1:]; len(w.page) == 0 {
		w.at.place = w.last
	}
}

// readPage reads the next page. The first call brings the index up to date.
func (w *letterScan) readPage(ctx context.Context, limit int) (err error) {
	if !w.more {
		return nil
	}
	if !w.drained {
		if err := w.index.Search.CatchUp(ctx); err != nil {
			return err
		}
		w.drained = true
	}
	w.page, w.more, w.last, err = w.index.Search.Search(ctx, w.tenant, w.index.JournalFilter(w.filter, w.at.asOf), w.order, w.at.place, 0, limit)
	if len(w.page) == 0 {
		w.at.place = w.last
	}
	return err
}
