package spec

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"
)

// Filter selects dead letters. An empty member selects all.
type Filter struct {
	Queue     string
	Type      string    // exactly, or with "*" at its end all that begin so
	ErrorType string    // of the last failure
	Since     time.Time // discarded then or later
	Until     time.Time // discarded before
	Args      string    // a part of the args as JSON; of the list only
}

const typeFilter = "must be a type, or the beginning of types and *"

// problem returns the parameter of a filter that is wrong, and why.
func (f Filter) problem() (field, problem string) {
	prefix, isPrefix := strings.CutSuffix(f.Type, "*")
	switch {
	case f.Queue != "" && !ValidQueue(f.Queue):
		return "queue", "must be the name of a queue"
	case f.Type != "" && !isPrefix && !validType(f.Type):
		return "type", typeFilter
	case isPrefix && prefix != "" && !validType(strings.TrimSuffix(prefix, ".")):
		return "type", typeFilter
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Until.After(f.Since):
		return "until", "must be after since"
	}
	return "", ""
}

type bulkNames struct {
	Filter  json.RawMessage `json:"filter"`
	Confirm json.RawMessage `json:"confirm"`
}

const notConfirmed = "must be true: nothing was changed"

// ParseBulkRetry reads the body that retries many dead letters: {"filter":{...},"confirm":true}. The filter
// must be there; an empty one selects everything. Without confirm, which must be true, and for a member
// that is not known the error is an *Error: a mistyped filter must never select more.
func ParseBulkRetry(body []byte) (Filter, error) {
	r, wrong := parseBody(body, bulkNames{})
	if wrong != nil {
		return Filter{}, wrong
	}
	r.closed("a bulk retry", "filter", "confirm")
	if confirm, _ := r.flag("confirm"); !confirm {
		r.wrong("confirm", notConfirmed)
	}
	f := r.filter()
	return f, r.failed()
}

// filter reads the member filter.
func (r reader) filter() (f Filter) {
	in, given := r.inner("filter")
	if !given {
		r.wrong("filter", "is missing")
		return f
	}
	in.closed("a filter", "queue", "type", "error_type", "since", "until")
	f.Queue, f.Type, f.ErrorType = in.named("queue", maxQueue), in.named("type", maxType+1), in.named("error_type", maxErrorType)
	f.Since, _ = in.time("since")
	f.Until, _ = in.time("until")
	if field, problem := f.problem(); field != "" {
		in.wrong(field, "%s", problem)
	}
	return f
}

// named reads a string that must not be empty.
func (r reader) named(name string, most int) string {
	s, given := r.text(name, most)
	if given && s == "" {
		r.wrong(name, "is empty")
	}
	return s
}

// ParseList reads the parameters of the list of dead letters. The error is an *Error, also for a parameter
// that is not known.
func ParseList(values url.Values) (Filter, Page, error) {
	q := newQuery(values)
	f := q.filter()
	f.Args = q.text("args", maxArgsFilter)
	p := q.page()
	if f.Args != "" && p.Offset > 0 {
		q.wrong("args", "excludes offset: follow next_cursor")
	}
	return f, p, q.finish()
}

// maxArgsFilter bounds the part of args that a list is searched for, in bytes.
const maxArgsFilter = 1024

// ParseNone refuses parameters of a request that has none. The error is an *Error.
func ParseNone(values url.Values) error { return newQuery(values).finish() }

// ParsePage reads the parameters of a list without filters and cursors. The error is an *Error.
func ParsePage(values url.Values) (Page, error) {
	q := newQuery(values)
	p := q.page()
	if p.After != "" {
		q.wrong("cursor", "is not a parameter here")
	}
	return p, q.finish()
}

// ParseAdminList reads the parameters of the list of administrators, which has numbered pages.
func ParseAdminList(values url.Values) (Filter, Page, error) {
	q := newQuery(values)
	f := q.filter()
	p := q.numberedPage()
	return f, p, q.finish()
}

// ParsePurge reads the parameters that purge dead letters: a filter, older_than and confirm=true. It sets
// Until from older_than, which is a time or an age such as 7d and excludes until. The error is an *Error.
func ParsePurge(values url.Values, now time.Time) (Filter, error) {
	q := newQuery(values)
	f := q.purge(now)
	q.confirmed()
	return f, q.finish()
}

// ParseCommandLinePurge is ParsePurge for the way of the public command line, which never confirms: with
// older_than it need not.
func ParseCommandLinePurge(values url.Values, now time.Time) (Filter, error) {
	q := newQuery(values)
	f := q.purge(now)
	if _, given := values["older_than"]; !given || len(values["confirm"]) > 0 {
		q.confirmed()
	}
	return f, q.finish()
}
