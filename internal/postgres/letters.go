package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// LetterFilter selects dead letters of a tenant. Zero members select everything.
type LetterFilter struct {
	Standing    background.Letter
	ReasonCode  string
	Class       background.Class
	ErrorType   string
	Transaction string
	Outcome     string
	From, To    time.Time // of death; To is excluded
}

// LetterPlace is a place in the order of letters: newest death first.
type LetterPlace struct {
	DeadAt time.Time
	Run    background.RunID
}

// Letters lists dead letters of a tenant with their cases, newest first, strictly
// after a place; the zero place is before all.
func (j *Journal) Letters(ctx context.Context, tenant string, f LetterFilter, after LetterPlace, limit int) ([]Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	args := []any{tenant}
	where := []string{"r.tenant = $1", "r.dead_at IS NOT NULL"}
	add := func(condition string, value any) {
		args = append(args, value)
		where = append(where, strings.ReplaceAll(condition, "?", "$"+strconv.Itoa(len(args))))
	}
	for _, is := range []struct{ column, value string }{
		{"r.letter", string(f.Standing)}, {"r.reason", f.ReasonCode}, {"r.class", string(f.Class)}, {"r.error_type", f.ErrorType},
		{"c.subject", f.Transaction}, {"c.adjudication", f.Outcome},
	} {
		if is.value != "" {
			add(is.column+" = ?", is.value)
		}
	}
	if !f.From.IsZero() {
		add("r.dead_at >= ?", f.From)
	}
	if !f.To.IsZero() {
		add("r.dead_at < ?", f.To)
	}
	if !after.Run.IsZero() {
		args = append(args, after.DeadAt, after.Run.String())
		where = append(where, "(r.dead_at, r.id) < ($"+strconv.Itoa(len(args)-1)+", $"+strconv.Itoa(len(args))+")")
	}
	args = append(args, limit)
	found, err := snapshots(ctx, j.reads, snapshotSQL+"WHERE "+strings.Join(where, " AND ")+
		" ORDER BY r.dead_at DESC, r.id DESC LIMIT $"+strconv.Itoa(len(args)), args...)
	var bad unreadable
	if errors.As(err, &bad) {
		j.Warn(bad)
		err = nil
	}
	return found, err
}
