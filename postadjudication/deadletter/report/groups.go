package report

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/settlement"
)

// GroupSort is an order of groups of letters. Equal groups are ordered by their
// signatures.
type GroupSort string

// The orders. The zero order is LargestGroups.
const (
	LargestGroups     GroupSort = "largest"
	NewestGroups      GroupSort = "newest" // by the death of the newest letter
	GroupsBySignature GroupSort = "signature"
)

// GroupSorts lists all orders.
var GroupSorts = []GroupSort{LargestGroups, NewestGroups, GroupsBySignature}

var groupOrders = map[GroupSort]search.GroupOrder{
	LargestGroups: search.BySize, NewestGroups: search.ByNewest, GroupsBySignature: search.BySignature,
}

// GroupQuery asks for a page of groups.
type GroupQuery struct {
	Filter deadletter.Filter
	Sort   GroupSort // LargestGroups when empty
	After  string    // GroupPage.Next of the page before; empty for the first
	Limit  int       // 1 to 1000
}

// Group is the group of letters with one signature, and so one cause.
type Group struct {
	Signature string           `json:"signature"` // for Filter.Signature
	ErrorType string           `json:"error_type"`
	Letters   int64            `json:"letters"`
	Open      int64            `json:"open"`
	AtRisk    settlement.Sums  `json:"at_risk"`    // reserved for the open ones
	FirstSeen time.Time        `json:"first_seen"` // death of the oldest
	LastSeen  time.Time        `json:"last_seen"`  // death of the newest
	Sample    background.RunID `json:"sample_run_id"`
}

// GroupPage is one page of a list of groups.
type GroupPage struct {
	Groups []Group `json:"groups"`
	Total  int     `json:"total"` // groups on all pages
	Next   string  `json:"next,omitempty"`
	More   bool    `json:"more"`
}

// Groups lists the causes of dead letters of a tenant. Each page is exact at its
// moment. In the order of signatures no group is missed or appears twice; in the other
// orders that can happen to a group whose rank changes between pages.
func (r Reports) Groups(ctx context.Context, q GroupQuery) (GroupPage, error) {
	if q.Sort == "" {
		q.Sort = LargestGroups
	}
	switch _, known := groupOrders[q.Sort]; {
	case q.Limit < 1 || q.Limit > deadletter.MaxLetters:
		return GroupPage{}, &refusal.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", deadletter.MaxLetters)}
	case !known:
		return GroupPage{}, &refusal.FieldError{Field: "sort", Problem: fmt.Sprintf("must be one of %v", GroupSorts)}
	}
	if err := deadletter.CheckQuery(r.tenant, q.Filter); err != nil {
		return GroupPage{}, err
	}
	scope, err := deadletter.CursorScope(r.tenant, q.Filter, deadletter.Sort("groups:"+q.Sort))
	if err != nil {
		return GroupPage{}, err
	}
	at := groupCursor{asOf: r.s.Now()}
	if q.After != "" {
		if at, err = decodeGroupCursor(q.After, scope); err != nil {
			return GroupPage{}, err
		}
	}
	if err := r.s.Search.CatchUp(ctx); err != nil {
		return GroupPage{}, err
	}
	page, err := r.groups(ctx, q, at)
	if err == nil && page.More {
		page.Next = groupCursor{page.last, at.asOf}.encode(scope)
	}
	return page.GroupPage, err
}

type groupResult struct {
	GroupPage
	last search.GroupCursor
}

func (r Reports) groups(ctx context.Context, q GroupQuery, at groupCursor) (out groupResult, err error) {
	found, all, last, more, err := r.s.Search.Groups(ctx, r.tenant, r.s.JournalFilter(q.Filter, at.asOf), groupOrders[q.Sort], at.place, q.Limit)
	if err != nil {
		return out, err
	}
	out = groupResult{GroupPage{Total: all, More: more}, last}
	out.Groups = groupsOf(found)
	return out, nil
}

func groupsOf(found []search.Group) []Group {
	out := make([]Group, len(found))
	for i, g := range found {
		group := Group{Signature: g.Signature, ErrorType: g.ErrorType, Letters: g.Letters, AtRisk: settlement.Sums{}, FirstSeen: g.First, LastSeen: g.Last, Sample: g.Sample}
		for _, t := range g.Tallies {
			if background.LetterStatus(t.Status) == background.LetterOpen {
				group.Open += t.Letters
			}
			addAtRisk(group.AtRisk, &t)
		}
		out[i] = group
	}
	return out
}

// groupCursor is a position in a list of groups, with the time at which the first page's
// filter was evaluated.
type groupCursor struct {
	place search.GroupCursor
	asOf  time.Time
}

const groupCursorMinSize = 8 + 8 + sha256.Size/2

// encode writes a cursor in the form of letterCursor.
func (c groupCursor) encode(scope []byte) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.asOf.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(c.place.Value))
	b = append(b, c.place.Signature...)
	sum := deadletter.CursorDigest(b, scope)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:sha256.Size/2]...))
}

func decodeGroupCursor(text string, scope []byte) (groupCursor, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	// The decoder ignores line ends.
	if err != nil || strings.ContainsAny(text, "\r\n") || len(b) < groupCursorMinSize {
		return groupCursor{}, &refusal.FieldError{Field: "after", Problem: "is not a cursor of a list of groups"}
	}
	body, digest := b[:len(b)-sha256.Size/2], b[len(b)-sha256.Size/2:]
	if sum := deadletter.CursorDigest(body, scope); string(sum[:sha256.Size/2]) != string(digest) {
		return groupCursor{}, &refusal.FieldError{Field: "after", Problem: "is a cursor of another list: tenant, filter and sort must be the same as for the page before"}
	}
	return groupCursor{
		asOf:  time.UnixMicro(int64(binary.BigEndian.Uint64(body))).UTC(),
		place: search.GroupCursor{Value: int64(binary.BigEndian.Uint64(body[8:])), Signature: string(body[16:]), Set: true},
	}, nil
}
