package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
)

// LetterGroup is the letters of one signature that a filter selects.
type LetterGroup struct {
	Signature string
	ErrorType string
	Letters   int64
	Tallies   []LetterTally // what it is made of
	First     time.Time     // death of the oldest
	Last      time.Time     // death of the newest
	Sample    background.RunID

	value int64
}

// GroupOrder is an order of groups; those that are alike in it are in the order of
// their signatures.
type GroupOrder string

// The orders.
const (
	BySize      GroupOrder = "size"      // the largest first
	ByNewest    GroupOrder = "newest"    // that of the newest letter first
	BySignature GroupOrder = "signature" // by signature alone
)

// GroupPlace is a place in an order of groups; the zero place is before all.
type GroupPlace struct {
	Value     int64
	Signature string
	Behind    bool // it is a place
}

func (g *LetterGroup) place() GroupPlace { return GroupPlace{g.value, g.Signature, true} }

func (p GroupPlace) compare(q GroupPlace) int {
	return cmp.Or(cmp.Compare(q.Value, p.Value), cmp.Compare(p.Signature, q.Signature))
}

// GroupLetters groups the letters of a tenant that a filter selects by signature, and
// gives the groups after a place: each as it is at one moment, how many there are in
// all, and the place of the last.
func (j *Journal) GroupLetters(ctx context.Context, tenant string, f LetterFilter, o GroupOrder, after GroupPlace, limit int) (found []LetterGroup, all int, last GroupPlace, more bool, err error) {
	last = after
	err = j.atOneMoment(ctx, func(ctx context.Context, tx *sql.Tx) error {
		p, tallies, err := tally(ctx, tx, tenant, f)
		if err != nil {
			return err
		}
		groups := grouped(tallies)
		all = len(groups)
		if o == ByNewest {
			if err := p.ends(ctx, tx, groups); err != nil {
				return err
			}
		}
		for i := range groups {
			switch o {
			case BySize:
				groups[i].value = groups[i].Letters
			case ByNewest:
				groups[i].value = groups[i].Last.UnixMicro()
			}
		}
		slices.SortFunc(groups, func(a, b LetterGroup) int { return a.place().compare(b.place()) })
		if after.Behind {
			groups = slices.DeleteFunc(groups, func(g LetterGroup) bool { return g.place().compare(after) <= 0 })
		}
		if more = len(groups) > limit; more {
			groups = groups[:limit]
		}
		if len(groups) > 0 {
			last = groups[len(groups)-1].place()
		}
		found = groups
		if o == ByNewest {
			return nil
		}
		return p.ends(ctx, tx, found)
	})
	return found, all, last, more, err
}

func grouped(tallies []LetterTally) []LetterGroup {
	slices.SortFunc(tallies, func(a, b LetterTally) int { return cmp.Compare(a.Signature, b.Signature) })
	var out []LetterGroup
	for _, t := range tallies {
		if n := len(out); n == 0 || out[n-1].Signature != t.Signature {
			out = append(out, LetterGroup{Signature: t.Signature, ErrorType: t.ErrorType})
		}
		g := &out[len(out)-1]
		g.Letters += t.Letters
		g.Tallies = append(g.Tallies, t)
	}
	return out
}

// ends sets the first and last death of groups, and the run of the last.
func (p *letterPlan) ends(ctx context.Context, tx *sql.Tx, groups []LetterGroup) error {
	at := map[int64]*LetterGroup{}
	for i := range groups {
		for _, t := range groups[i].Tallies {
			at[t.shape] = &groups[i]
		}
	}
	of := *p
	of.shapes = slices.DeleteFunc(slices.Clone(p.shapes), func(s shape) bool { return at[s.id] == nil })
	if of.nothing() || len(of.shapes) == 0 {
		return nil
	}
	of.all = of.all && len(of.shapes) == len(p.shapes)
	query, args := of.endsStatement()
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var shape int64
		var first, last time.Time
		var run uuid.UUID
		if err := rows.Scan(&shape, &first, &last, &run); err != nil {
			return err
		}
		g := at[shape]
		if g.First.IsZero() || first.Before(g.First) {
			g.First = first.UTC()
		}
		if last.After(g.Last) || last.Equal(g.Last) && background.RunID(run).String() > g.Sample.String() {
			g.Last, g.Sample = last.UTC(), background.RunID(run)
		}
	}
	return rows.Err()
}

func (p *letterPlan) endsStatement() (string, []any) {
	var c conditions
	if p.way != byShapes {
		return p.gathered(&c) + ` SELECT shape, min(dead_at), max(dead_at), (array_agg(run_id ORDER BY dead_at DESC, run_id DESC))[1] FROM g GROUP BY shape`, c.args
	}
	of := p.ofShapes(&c)
	where := c.String()
	return `SELECT s.id, a.dead_at, z.dead_at, z.run_id FROM ` + of + `
  CROSS JOIN LATERAL (SELECT l.dead_at FROM recourse.letters l WHERE ` + where + ` ORDER BY l.dead_at, l.run_id LIMIT 1) a
  CROSS JOIN LATERAL (SELECT l.dead_at, l.run_id FROM recourse.letters l WHERE ` + where + ` ORDER BY l.dead_at DESC, l.run_id DESC LIMIT 1) z`, c.args
}
