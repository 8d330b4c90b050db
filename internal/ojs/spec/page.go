package spec

import (
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

// Page is which part of a list is wanted.
type Page struct {
	Limit  int
	Offset int
	After  string // next_cursor of the page before, which the server that made it checks; empty: from the first on
	Number int    // from 1, of the list of administrators; Offset follows from it
}

// The limits of lists.
const (
	defaultLimit   = 50
	maxLimit       = 200 // a higher one is cut to it: HTTP has 100 and 200, the API document 1000
	defaultPerPage = 20
	maxCursor      = 512 // bytes
	maxPerPage     = 100 // likewise
)

// query reads the parameters of a request, and keeps the first refusal.
type query struct {
	values  url.Values
	read    []string
	refusal *Error
}

func newQuery(values url.Values) *query { return &query{values: values} }

func (q *query) wrong(name, problem string, args ...any) {
	if q.refusal == nil {
		q.refusal = Invalid(name, problem, args...)
	}
}

// finish refuses parameters that were not read.
func (q *query) finish() error {
	names := make([]string, 0, len(q.values))
	for name := range q.values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(q.read, name) {
			q.wrong(strictjson.Name(name), "is not a parameter here")
		}
	}
	if q.refusal != nil {
		return q.refusal
	}
	return nil
}

// text reads a parameter of at most a number of bytes. One without a value is refused.
func (q *query) text(name string, most int) string {
	q.read = append(q.read, name)
	switch all := q.values[name]; {
	case len(all) > 1:
		q.wrong(name, "is given twice")
	case len(all) == 1 && all[0] == "":
		q.wrong(name, "is empty")
	case len(all) == 1 && !isPlain(all[0]):
		q.wrong(name, "must be UTF-8 without U+0000")
	case len(all) == 1 && len(all[0]) > most:
		q.wrong(name, "must be at most %d bytes", most)
	case len(all) == 1:
		return all[0]
	}
	return ""
}

// whole reads a whole number. One over the most is cut to it.
func (q *query) whole(name string, otherwise, least, most int) int {
	raw := q.text(name, MaxBody)
	if raw == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(raw, 10, 64)
	switch {
	case err != nil && !isDigits(raw), err == nil && n < uint64(least):
		q.wrong(name, "must be a whole number from %d on", least)
		return otherwise
	case err != nil || n > uint64(most):
		return most
	}
	return int(n)
}

func (q *query) time(name string) time.Time {
	raw := q.text(name, MaxBody)
	if raw == "" {
		return time.Time{}
	}
	t, err := parseTime(raw)
	if err != nil {
		q.wrong(name, "%s", err)
	}
	return t
}

func (q *query) filter() Filter {
	f := Filter{
		Queue: q.text("queue", MaxBody), Type: q.text("type", MaxBody), ErrorType: q.text("error_type", maxErrorType),
		Since: q.time("since"), Until: q.time("until"),
	}
	if field, problem := f.problem(); field != "" {
		q.wrong(field, "%s", problem)
	}
	return f
}

// page reads limit, and offset or cursor.
func (q *query) page() Page {
	p := Page{Limit: q.whole("limit", defaultLimit, 1, maxLimit), Offset: q.whole("offset", 0, 0, math.MaxInt32)}
	if p.After = q.text("cursor", maxCursor); p.After != "" && p.Offset > 0 {
		q.wrong("cursor", "excludes offset")
	}
	return p
}

func (q *query) numberedPage() Page {
	p := Page{Limit: q.whole("per_page", defaultPerPage, 1, maxPerPage), Number: q.whole("page", 1, 1, math.MaxInt32/maxPerPage)}
	p.Offset = (p.Number - 1) * p.Limit
	return p
}

func (q *query) purge(now time.Time) Filter {
	f := q.filter()
	raw := q.text("older_than", MaxBody)
	if raw == "" {
		return f
	}
	if !f.Until.IsZero() {
		q.wrong("older_than", "excludes until")
	}
	t, err := parseTime(raw)
	if err != nil {
		var age time.Duration
		if age, err = parseAge(raw); err != nil {
			q.wrong("older_than", "%s", err)
			return f
		}
		t = now.Add(-age)
	}
	if f.Until = t; !f.Since.IsZero() && !t.After(f.Since) {
		q.wrong("older_than", "must be after since")
	}
	return f
}

func (q *query) confirmed() {
	if q.text("confirm", MaxBody) != "true" {
		q.wrong("confirm", notConfirmed)
	}
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// isPlain reports whether a store can hold a text.
func isPlain(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
