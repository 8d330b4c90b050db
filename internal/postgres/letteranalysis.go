package postgres

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/lib/pq"
)

// LetterTally is how many letters of one shape a filter selects, and the money that
// stays reserved for those of them that are open.
type LetterTally struct {
	Standing, Family, Queue, JobType, Outcome, Reason, Class, ErrorType, Currency, Signature, ReplayedBy string

	Held, Eligible, Review bool

	Letters  int64
	AtRisk   int64
	Attempts int64 // of all of them

	shape int64
}

// LetterAnalysis is what the letters that a filter selects have in common.
type LetterAnalysis struct {
	Tallies    []LetterTally
	Signatures int           // of all of them
	Largest    []LetterGroup // of these, the largest first
}

// TallyLetters counts the letters of a tenant that a filter selects, by what they have
// in common, and does the counts of deaths that are asked for beside it: exactly, and
// all at one moment.
func (j *Journal) TallyLetters(ctx context.Context, tenant string, f LetterFilter, deaths ...*Deaths) ([]LetterTally, error) {
	out, err := j.AnalyzeLetters(ctx, tenant, f, 0, deaths...)
	return out.Tallies, err
}

// AnalyzeLetters tallies letters and gives so many of their largest groups, of the same
// moment.
func (j *Journal) AnalyzeLetters(ctx context.Context, tenant string, f LetterFilter, largest int, deaths ...*Deaths) (out LetterAnalysis, err error) {
	err = j.atOneMoment(ctx, func(ctx context.Context, tx *sql.Tx) error {
		p, tallies, err := tally(ctx, tx, tenant, f)
		if err != nil {
			return err
		}
		out.Tallies = tallies
		for _, d := range deaths {
			if err := d.count(ctx, tx, p); err != nil {
				return err
			}
		}
		if largest == 0 {
			return nil
		}
		groups := grouped(tallies)
		out.Signatures = len(groups)
		for i := range groups {
			groups[i].value = groups[i].Letters
		}
		slices.SortFunc(groups, func(a, b LetterGroup) int { return a.place().compare(b.place()) })
		out.Largest = groups[:min(largest, len(groups))]
		return p.ends(ctx, tx, out.Largest)
	})
	return out, err
}

// atOneMoment runs searches that see the same letters, within the time of a count.
func (j *Journal) atOneMoment(ctx context.Context, look func(context.Context, *sql.Tx) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	tx, err := j.finding.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	return maybeUnavailable(look(ctx, tx))
}

// reading plans to read all that a filter leaves: by what is narrowest.
func reading(ctx context.Context, tx *sql.Tx, tenant string, f LetterFilter) (p letterPlan, err error) {
	p = letterPlan{tenant: tenant, filter: f, looks: textMost}
	var all int64
	if p.shapes, all, err = shapesOf(ctx, tx, tenant, f, LetterOrder{}); err != nil || p.nothing() {
		return p, err
	}
	p.fold()
	p.all = p.letters() == all
	if p.way = byKey; p.filter.keyed() {
		return p, nil
	}
	sizes, err := p.probe(ctx, tx)
	p.narrowest(sizes)
	return p, err
}

// wholeShapes reports whether all letters of the plan's shapes are selected.
func (p *letterPlan) wholeShapes() bool { return !p.restricted() && !p.checks() }

// restricted reports whether something but the text is asked that shapes don't tell.
func (p *letterPlan) restricted() bool {
	return len(p.filter.ranged()) > 0 || p.filter.keyed() || p.filter.replayed() || p.bounded()
}

func tally(ctx context.Context, tx *sql.Tx, tenant string, f LetterFilter) (p letterPlan, out []LetterTally, err error) {
	if p, err = reading(ctx, tx, tenant, f); err != nil || p.nothing() {
		return p, nil, err
	}
	whole := p.wholeShapes()
	counted := map[int64][3]int64{}
	if !whole {
		if counted, err = p.counted(ctx, tx); err != nil {
			return p, nil, err
		}
	}
	out, err = p.tallies(ctx, tx)
	if whole || err != nil {
		return p, out, err
	}
	some := out[:0]
	for _, t := range out {
		if n, any := counted[t.shape]; any {
			t.Letters, t.AtRisk, t.Attempts = n[0], n[1], n[2]
			some = append(some, t)
		}
	}
	return p, some, nil
}

// tallies reads the plan's shapes, with all their letters.
func (p *letterPlan) tallies(ctx context.Context, tx *sql.Tx) (out []LetterTally, err error) {
	ids := make([]int64, len(p.shapes))
	for i, s := range p.shapes {
		ids[i] = s.id
	}
	rows, err := tx.QueryContext(ctx, `SELECT s.id, standing, family, queue, job_type, outcome, reason_code, class, error_type, currency, signature, replayed_by, held, eligible, review, letters, at_risk, attempts
FROM unnest($1::bigint[]) AS i(id) JOIN recourse.letter_shapes s ON s.id = i.id`, pq.Array(ids))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out = make([]LetterTally, 0, len(ids))
	for rows.Next() {
		var t LetterTally
		if err := rows.Scan(&t.shape, &t.Standing, &t.Family, &t.Queue, &t.JobType, &t.Outcome, &t.Reason, &t.Class, &t.ErrorType, &t.Currency, &t.Signature, &t.ReplayedBy,
			&t.Held, &t.Eligible, &t.Review, &t.Letters, &t.AtRisk, &t.Attempts); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, rows.Err()
}

// counted counts and adds up what is selected of each shape, of which there is any.
func (p *letterPlan) counted(ctx context.Context, tx *sql.Tx) (map[int64][3]int64, error) {
	out := map[int64][3]int64{}
	left, err := p.countByText(ctx, tx, out)
	if err != nil || left.nothing() {
		return out, err
	}
	return out, left.countedBy(ctx, tx, out)
}

func (p *letterPlan) countedBy(ctx context.Context, tx *sql.Tx, into map[int64][3]int64) error {
	const sums = `count(*), coalesce(sum(l.at_risk), 0), coalesce(sum(l.attempts), 0)`
	var c conditions
	var query string
	switch {
	case p.looksAtAll():
		p.lying(&c)
		query = `SELECT l.shape, ` + sums + ` FROM recourse.letters l WHERE ` + c.String() + ` GROUP BY l.shape`
	case p.way == byShapes:
		of := p.ofShapes(&c)
		query = `SELECT s.id, m.* FROM ` + of + ` CROSS JOIN LATERAL (SELECT ` + sums + ` FROM recourse.letters l WHERE ` + c.String() + `) AS m(n, risk, tries) WHERE m.n > 0`
	default:
		query = p.gathered(&c) + ` SELECT l.shape, ` + sums + ` FROM g l GROUP BY l.shape`
	}
	return p.looking(ctx, tx, func() error {
		rows, err := tx.QueryContext(ctx, query, c.args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var shape int64
			var n [3]int64
			if err := rows.Scan(&shape, &n[0], &n[1], &n[2]); err != nil {
				return err
			}
			into[shape] = n
		}
		return rows.Err()
	})
}

// gathered gathers the few letters that a key or a narrow range leaves, as g.
func (p *letterPlan) gathered(c *conditions) string {
	p.ofTenant(c)
	ordered := ""
	if p.way == byRange {
		ordered = ` ORDER BY l.` + string(p.column)
	}
	return `WITH g AS MATERIALIZED (SELECT l.shape, l.run_id, l.dead_at, l.at_risk, l.attempts FROM recourse.letters l WHERE ` + c.String() + ordered + `)`
}
