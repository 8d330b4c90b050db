package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// A text that messages may contain where they differ is looked for by its grams:
//
//	shapes ─┬─▶ whose constant part contains it: all their letters
//	        ├─▶ whose messages must have some grams of it: those few letters that have them
//	        └─▶ others, as when a text is too short to have grams: each letter is looked
//	            at, unless none has such a text (lettershort.go); where few contain it,
//	            all as they lie (letterlying.go)

const (
	textMost = 10_000 // letters that have the grams and are looked at; of more, all are
	textSets = 16     // different sets of grams that are looked for at once
)

// textPlan is the part of a plan whose letters are found by grams.
type textPlan struct {
	letterPlan
	sets []string // of grams, as literals: letters have all of one
}

// byText divides a plan. It is false when there is nothing to be found by grams.
func (p *letterPlan) byText() (found textPlan, others letterPlan, able bool) {
	if !p.checks() || p.filter.keyed() {
		return found, others, false
	}
	found, others = textPlan{letterPlan: *p}, *p
	found.shapes, others.shapes, found.all, others.all = nil, nil, false, false
	needs := map[string][]int32{} // by constant part
	for _, s := range p.shapes {
		need, known := needs[s.constant]
		if s.check && !known {
			need = gramsBut(p.tenant, p.filter.Shape.Text, s.constant)
			needs[s.constant] = need
		}
		if s.check && len(need) > 0 {
			found.shapes = append(found.shapes, s)
			if set := arrayOf(need); !slices.Contains(found.sets, set) {
				found.sets = append(found.sets, set)
			}
			continue
		}
		others.shapes = append(others.shapes, s)
	}
	return found, others, len(found.sets) > 0 && len(found.sets) <= textSets
}

// candidates are the letters that have the grams, as the table c: one more than may be
// looked at, where there are too many.
func (p *textPlan) candidates(c *conditions) string {
	having := []string{`l.grams @> '{0}'`}
	for _, set := range p.sets {
		having = append(having, "l.grams @> "+c.arg(set)+"::int[]")
	}
	return fmt.Sprintf(`WITH h AS MATERIALIZED (SELECT l.tenant, l.run_id, l.shape, l.dead_at, l.last_seen_at, l.amount, l.at_risk, l.attempts, l.replays, l.error_text FROM recourse.letters l WHERE %s),
c AS MATERIALIZED (SELECT l.tenant, l.run_id, l.shape, l.dead_at, l.last_seen_at, l.amount, l.at_risk, l.attempts, l.replays, strpos(l.error_text, %s) > 0 AS has FROM (SELECT * FROM h LIMIT %d) l)`,
		strings.Join(having, " OR "), c.arg(p.filter.Shape.Text), p.looks+1)
}

// matching restricts l, which is c, to what is looked for.
func (p *textPlan) matching(c *conditions) {
	ids := make([]int64, len(p.shapes))
	for i, s := range p.shapes {
		ids[i] = s.id
	}
	c.parts = append(c.parts, "l.has")
	c.add("l.tenant = ?", p.tenant)
	c.add("l.shape = ANY(?::bigint[])", pq.Array(ids))
	p.beforeEnds(c)
	p.filter.rest(c)
}

// first finds so many of the letters after a place. It is false when too many have
// the grams.
func (p *textPlan) first(ctx context.Context, q querier, after LetterPlace, limit int) (out []LetterPlace, able bool, err error) {
	var c conditions
	having := p.candidates(&c)
	p.matching(&c)
	p.after(&c, after)
	rows, err := q.QueryContext(ctx, having+` SELECT k.n, m.run_id, m.value FROM (SELECT count(*) AS n FROM c) k LEFT JOIN LATERAL (
  SELECT l.run_id, l.`+string(p.order.Column)+` AS value FROM c l WHERE `+c.String()+p.order.ends("value", "run_id", limit)+`) m ON true`, c.args...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		var id uuid.NullUUID
		var value any
		if err := rows.Scan(&n, &id, &value); err != nil {
			return nil, false, err
		}
		if n > int64(p.looks) {
			return nil, false, nil
		}
		if id.Valid {
			out = append(out, placeAt(id.UUID, value))
		}
	}
	return out, true, rows.Err()
}

// counts counts and adds up the letters by shape. It is false when too many have the
// grams.
func (p *textPlan) counts(ctx context.Context, q querier, into map[int64][3]int64) (able bool, err error) {
	var c conditions
	having := p.candidates(&c)
	p.matching(&c)
	rows, err := q.QueryContext(ctx, having+` SELECT k.n, m.* FROM (SELECT count(*) AS n FROM c) k LEFT JOIN LATERAL (
  SELECT l.shape, count(*), sum(l.at_risk), sum(l.attempts) FROM c l WHERE `+c.String()+` GROUP BY l.shape) m ON true`, c.args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var all int64
		var shape, n, risk, tries sql.NullInt64
		if err := rows.Scan(&all, &shape, &n, &risk, &tries); err != nil {
			return false, err
		}
		if all > int64(p.looks) {
			return false, nil
		}
		if shape.Valid {
			into[shape.Int64] = [3]int64{n.Int64, risk.Int64, tries.Int64}
		}
	}
	return true, rows.Err()
}
