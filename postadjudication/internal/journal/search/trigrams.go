package search

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/signature"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
)

// anyTrigram stands for all trigrams. It is stored for a message with more than
// maxTrigrams, and for letters indexed before there were trigrams.
const (
	anyTrigram  = 0
	maxTrigrams = 300
	trigramSize = 3 // characters
)

// trigrams returns the hashes of the substrings of trigramSize characters in a text in
// lower case. Hashes may collide. They depend on the tenant, so that the index entries of
// one tenant are not searched for another.
func trigrams(tenant string, texts ...string) map[int32]bool {
	out := map[int32]bool{}
	for _, text := range texts {
		runes := []rune(text)
		for i := 0; i+trigramSize <= len(runes); i++ {
			h := fnv.New32a()
			_, _ = h.Write([]byte(tenant + "\x00" + string(runes[i:i+trigramSize]))) // a hash takes everything
			if g := int32(h.Sum32()); g != anyTrigram {
				out[g] = true
			}
		}
	}
	return out
}

// trigramsWithout returns the trigrams of a text that the constant part of messages does
// not have. A message with that constant part that contains the text has all of them.
func trigramsWithout(tenant, text, constant string) []int32 {
	inConstant := trigrams(tenant, strings.Split(constant, signature.Gap)...)
	var out []int32
	for g := range trigrams(tenant, text) {
		if !inConstant[g] {
			out = append(out, g)
		}
	}
	slices.Sort(out)
	return out
}

// storedTrigrams returns the trigrams to store for a message: those beyond its constant
// part.
func storedTrigrams(tenant, message, constant string) []int32 {
	out := trigramsWithout(tenant, message, constant)
	if len(out) > maxTrigrams {
		return []int32{anyTrigram}
	}
	return out
}

// arrayLiteral formats trigrams as an array literal.
func arrayLiteral(values []int32) string {
	b := []byte{'{'}
	for i, g := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(g), 10)
	}
	return string(append(b, '}'))
}

// A text that messages may contain outside their constant parts is searched by its
// trigrams:
//
//	facet groups ─┬─▶ constant part contains it: all their letters
//	              ├─▶ messages must have some of its trigrams: the few letters that have them
//	              └─▶ others, such as for a text too short for trigrams: each letter is
//	                  checked, unless the stored short substrings exclude it
//	                  (substrings.go); if matches are rare, in heap order
//	                  (statement.go)

const (
	maxTextCandidates = 10_000 // letters with the trigrams whose messages are checked; if there are more, all are checked
	maxTrigramSets    = 16     // most distinct sets of trigrams in one search
)

// trigramPlan is the part of a plan whose letters are found by trigrams.
type trigramPlan struct {
	AccessPlan
	sets []string // of trigrams, as literals: a letter must have all of one set
}

// splitByTrigrams divides a plan. ok is false if trigrams can't be used.
func (p *AccessPlan) splitByTrigrams() (indexed trigramPlan, others AccessPlan, ok bool) {
	if !p.checksText() || p.filter.hasKey() {
		return indexed, others, false
	}
	indexed, others = trigramPlan{AccessPlan: *p}, *p
	indexed.groups, others.groups, indexed.allGroups, others.allGroups = nil, nil, false, false
	needs := map[string][]int32{} // by constant part
	for _, s := range p.groups {
		need, seen := needs[s.constant]
		if s.checkText && !seen {
			need = trigramsWithout(p.tenant, p.filter.Facets.Text, s.constant)
			needs[s.constant] = need
		}
		if s.checkText && len(need) > 0 {
			indexed.groups = append(indexed.groups, s)
			if set := arrayLiteral(need); !slices.Contains(indexed.sets, set) {
				indexed.sets = append(indexed.sets, set)
			}
			continue
		}
		others.groups = append(others.groups, s)
	}
	return indexed, others, len(indexed.sets) > 0 && len(indexed.sets) <= maxTrigramSets
}

// candidates returns a WITH clause that reads the letters with the trigrams, as table c: at
// most textLimit+1, which tells that there are too many.
func (p *trigramPlan) candidates(c *conditions) string {
	having := []string{`l.trigrams @> '{0}'`}
	for _, set := range p.sets {
		having = append(having, "l.trigrams @> "+c.arg(set)+"::int[]")
	}
	return fmt.Sprintf(`WITH h AS MATERIALIZED (SELECT l.tenant, l.run_id, l.facet_group, l.dead_at, l.last_seen_at, l.amount, l.at_risk, l.attempts, l.replays, l.error_text FROM recourse.letters l WHERE %s),
c AS MATERIALIZED (SELECT l.tenant, l.run_id, l.facet_group, l.dead_at, l.last_seen_at, l.amount, l.at_risk, l.attempts, l.replays, strpos(l.error_text, %s) > 0 AS has FROM (SELECT * FROM h LIMIT %d) l)`,
		strings.Join(having, " OR "), c.arg(p.filter.Facets.Text), p.textLimit+1)
}

// addMatching restricts l, which is c, to the letters that match.
func (p *trigramPlan) addMatching(c *conditions) {
	ids := make([]int64, len(p.groups))
	for i, s := range p.groups {
		ids[i] = s.id
	}
	c.parts = append(c.parts, "l.has")
	c.add("l.tenant = ?", p.tenant)
	c.add("l.facet_group = ANY(?::bigint[])", pq.Array(ids))
	p.restrictToDeathBounds(c)
	p.filter.addRanges(c)
}

// statement returns the SQL of the search: the number of candidates, with the first matches.
func (p *trigramPlan) statement(after Position, limit int) (string, []any) {
	var c conditions
	having := p.candidates(&c)
	p.addMatching(&c)
	p.restrictAfter(&c, after)
	return having + ` SELECT k.n, m.run_id, m.value FROM (SELECT count(*) AS n FROM c) k LEFT JOIN LATERAL (
  SELECT l.run_id, l.` + string(p.order.Column) + ` AS value FROM c l WHERE ` + c.String() + p.order.orderByLimit("value", "run_id", limit) + `) m ON true`, c.args
}

// findFirst finds positions after one, at most limit. ok is false if too many letters have
// the trigrams.
func (p *trigramPlan) findFirst(ctx context.Context, q pg.Querier, after Position, limit int) (out []Position, ok bool, err error) {
	query, args := p.statement(after, limit)
	rows, err := q.QueryContext(ctx, query, args...)
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
		if n > int64(p.textLimit) {
			return nil, false, nil
		}
		if id.Valid {
			out = append(out, positionOf(id.UUID, value))
		}
	}
	return out, true, rows.Err()
}

// countByGroup counts and adds up the letters by group. ok is false if too many letters
// have the trigrams.
func (p *trigramPlan) countByGroup(ctx context.Context, q pg.Querier, into map[int64]letterSums) (ok bool, err error) {
	var c conditions
	having := p.candidates(&c)
	p.addMatching(&c)
	rows, err := q.QueryContext(ctx, having+` SELECT k.n, m.facet_group, coalesce(m.n, 0), coalesce(m.risk, 0), coalesce(m.tries, 0) FROM (SELECT count(*) AS n FROM c) k LEFT JOIN LATERAL (
  SELECT l.facet_group, count(*) AS n, sum(l.at_risk) AS risk, sum(l.attempts) AS tries FROM c l WHERE `+c.String()+` GROUP BY l.facet_group) m ON true`, c.args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var all int64
		var groupID sql.NullInt64
		var n letterSums
		if err := rows.Scan(&all, &groupID, &n.letters, &n.atRisk, &n.attempts); err != nil {
			return false, err
		}
		if all > int64(p.textLimit) {
			return false, nil
		}
		if groupID.Valid {
			into[groupID.Int64] = n
		}
	}
	return true, rows.Err()
}
