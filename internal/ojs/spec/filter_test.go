package spec_test

import (
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

func values(t *testing.T, query string) url.Values {
	t.Helper()
	v, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

var (
	since, until = now.Add(-time.Hour), now
	inRange      = "since=2026-11-21T09:00:00Z&until=2026-11-21T10:00:00Z"
)

func sameFilter(a, b spec.Filter) bool {
	same := a.Since.Equal(b.Since) && a.Until.Equal(b.Until)
	a.Since, a.Until, b.Since, b.Until = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return same && a == b
}

func TestFiltersAndPagesOfTheList(t *testing.T) {
	t.Parallel()
	cursor := spec.Cursor{DiscardedAt: now, ID: jobID}
	for query, c := range map[string]struct {
		f spec.Filter
		p spec.Page
	}{
		"": {spec.Filter{}, spec.Page{Limit: 50}},
		"queue=billing&type=invoice.generate&error_type=DatabaseConnectionError&args=tx_1&" + inRange: {spec.Filter{Queue: "billing", Type: "invoice.generate", ErrorType: "DatabaseConnectionError", Args: "tx_1", Since: since, Until: until}, spec.Page{Limit: 50}},
		"type=invoice.*":                     {spec.Filter{Type: "invoice.*"}, spec.Page{Limit: 50}},
		"type=invoice*":                      {spec.Filter{Type: "invoice*"}, spec.Page{Limit: 50}},
		"type=*":                             {spec.Filter{Type: "*"}, spec.Page{Limit: 50}},
		"limit=1&offset=0":                   {spec.Filter{}, spec.Page{Limit: 1}},
		"limit=200&offset=7":                 {spec.Filter{}, spec.Page{Limit: 200, Offset: 7}},
		"limit=201":                          {spec.Filter{}, spec.Page{Limit: 200}},
		"limit=1000":                         {spec.Filter{}, spec.Page{Limit: 200}},
		"limit=99999999999999999999":         {spec.Filter{}, spec.Page{Limit: 200}},
		"limit=007":                          {spec.Filter{}, spec.Page{Limit: 7}},
		"offset=99999999999999999999":        {spec.Filter{}, spec.Page{Limit: 50, Offset: math.MaxInt32}},
		"cursor=" + cursor.String():          {spec.Filter{}, spec.Page{Limit: 50, After: &cursor}},
		"offset=0&cursor=" + cursor.String(): {spec.Filter{}, spec.Page{Limit: 50, After: &cursor}},
		"since=2026-11-21T09:00:00Z&until=2026-11-21T09:00:00Z": {spec.Filter{Since: since, Until: since}, spec.Page{Limit: 50}},
		"since=2026-11-21T09:00:00Z":                            {spec.Filter{Since: since}, spec.Page{Limit: 50}},
		"since=2026-11-21T10%3A00%3A00%2B01:00":                 {spec.Filter{Since: since}, spec.Page{Limit: 50}},
	} {
		f, p, err := spec.ParseList(values(t, query))
		if err != nil || !sameFilter(f, c.f) || p.Limit != c.p.Limit || p.Offset != c.p.Offset || (p.After == nil) != (c.p.After == nil) || p.After != nil && *p.After != *c.p.After || f.IsEmpty() != (c.f == spec.Filter{}) {
			t.Errorf("%s: %+v, %+v, %v", query, f, p, err)
		}
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=-1": "limit", "limit=1.5": "limit", "limit=ten": "limit", "limit=": "limit", "limit=%2B5": "limit", "limit=5&limit=6": "limit", "limit=0x10": "limit",
		"offset=-1": "offset", "offset=a": "offset", "cursor=x": "cursor", "cursor=": "cursor", "offset=1&cursor=" + cursor.String(): "cursor",
		"queue=": "queue", "queue=A": "queue", "queue=a&queue=b": "queue", "queue=a%00": "queue", "queue=%FF": "queue", "queue=" + strings.Repeat("q", 129): "queue",
		"type=": "type", "type=A": "type", "type=a**": "type", "type=*a": "type", "type=a..*": "type", "type=.*": "type", "type=a%25": "type",
		"error_type=": "error_type", "error_type=%00": "error_type", "error_type=" + strings.Repeat("e", 256): "error_type", "args=": "args", "args=" + strings.Repeat("e", 256): "args",
		"since=yesterday": "since", "since=2026-11-21": "since", "since=2026-11-21T10:00:00": "since", "since=2026-11-21T10:00:00+01:00": "since", "until=7d": "until",
		"since=2026-11-21T10:00:00Z&until=2026-11-21T09:59:59.999999999Z": "until",
		"Queue=a": "Queue", "queues=a": "queues", "older_than=7d": "older_than", "page=1": "page", "per_page=5": "per_page", "confirm=true": "confirm", "error-type=a": "error-type", "": "",
	} {
		if query == "" {
			continue
		}
		_, _, err := spec.ParseList(values(t, query))
		refused(t, query, err, 400, "invalid_request", field)
	}
}

func TestPagesOfTheAdminList(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]spec.Page{
		"": {Limit: 20, Number: 1}, "page=3&per_page=100": {Limit: 100, Number: 3, Offset: 200}, "per_page=101": {Limit: 100, Number: 1}, "page=2": {Limit: 20, Number: 2, Offset: 20},
		"queue=a&type=b.*&error_type=E&" + inRange: {Limit: 20, Number: 1}, "page=99999999999999999999&per_page=100": {Limit: 100, Number: math.MaxInt32 / 100, Offset: (math.MaxInt32/100 - 1) * 100},
	} {
		_, p, err := spec.ParseAdminList(values(t, query))
		if err != nil || p != want {
			t.Errorf("%s: %+v, %v", query, p, err)
		}
	}
	for query, field := range map[string]string{"page=0": "page", "page=-1": "page", "page=a": "page", "per_page=0": "per_page", "limit=5": "limit", "cursor=x": "cursor", "args=x": "args", "offset=1": "offset"} {
		_, _, err := spec.ParseAdminList(values(t, query))
		refused(t, query, err, 400, "invalid_request", field)
	}
}

func TestPurges(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for query, want := range map[string]spec.Filter{
		"":                                {},
		"queue=a&type=b.*&error_type=E":   {Queue: "a", Type: "b.*", ErrorType: "E"},
		inRange:                           {Since: since, Until: until},
		"older_than=7d":                   {Until: now.Add(-7 * day)},
		"older_than=24h":                  {Until: now.Add(-day)},
		"older_than=P180D":                {Until: now.Add(-180 * day)},
		"older_than=P1Y":                  {Until: now.Add(-365 * day)},
		"older_than=0h":                   {Until: now},
		"older_than=2026-11-01T00:00:00Z": {Until: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
		"older_than=30m":                  {Queue: "?"}, "older_than=7": {Queue: "?"}, "older_than=d": {Queue: "?"}, "older_than=-7d": {Queue: "?"}, "older_than=7D": {Queue: "?"}, "older_than=1.5d": {Queue: "?"}, "older_than=9999999d": {Queue: "?"},
		"older_than=999999d": {Queue: "?"}, "older_than=": {Queue: "?"}, "older_than=7d&older_than=8d": {Queue: "?"}, "older_than=7w": {Queue: "?"}, "older_than=PT": {Queue: "?"},
		"older_than=7d&until=2026-11-01T00:00:00Z": {Queue: "?"}, "older_than=7d&since=2026-11-20T00:00:00Z": {Queue: "?"},
	} {
		f, err := spec.ParsePurge(values(t, query+"&confirm=true"), now)
		if want.Queue == "?" {
			refused(t, query, err, 400, "invalid_request", "older_than")
		} else if err != nil || !sameFilter(f, want) {
			t.Errorf("%s: %+v, %v", query, f, err)
		}
	}
	for query, field := range map[string]string{
		"": "confirm", "queue=a": "confirm", "older_than=7d": "confirm", "confirm=false": "confirm", "confirm=": "confirm", "confirm=1": "confirm", "confirm=TRUE": "confirm", "confirm=true&confirm=true": "confirm",
		"confirm=true&que=a": "que", "confirm=true&limit=5": "limit", "confirm=true&args=a": "args", "confirm=true&since=x": "since",
	} {
		_, err := spec.ParsePurge(values(t, query), now)
		refused(t, query, err, 400, "invalid_request", field)
	}
	if f, err := spec.ParseCommandLinePurge(values(t, "older_than=7d"), now); err != nil || !sameFilter(f, spec.Filter{Until: now.Add(-7 * day)}) {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := spec.ParseCommandLinePurge(values(t, "queue=a&confirm=true"), now); err != nil || f.Queue != "a" {
		t.Errorf("%+v, %v", f, err)
	}
	for query, field := range map[string]string{"": "confirm", "queue=a": "confirm", "older_than=7d&confirm=false": "confirm", "older_than=x": "older_than", "older_than=7d&x=1": "x"} {
		_, err := spec.ParseCommandLinePurge(values(t, query), now)
		refused(t, query, err, 400, "invalid_request", field)
	}
}

func TestBulkRetries(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]spec.Filter{
		`{"filter":{},"confirm":true}`: {},
		`{"filter":{"queue":"billing","type":"invoice.generate","since":"2026-11-21T09:00:00Z","until":"2026-11-21T10:00:00Z","error_type":"E"},"confirm":true}`: {Queue: "billing", Type: "invoice.generate", Since: since, Until: until, ErrorType: "E"},
		`{"filter":{"type":"invoice.*"},"confirm":true}`: {Type: "invoice.*"},
	} {
		f, err := spec.ParseBulkRetry([]byte(body))
		if err != nil || !sameFilter(f, want) {
			t.Errorf("%s: %+v, %v", body, f, err)
		}
	}
	for body, field := range map[string]string{
		`{}`: "confirm", `{"filter":{}}`: "confirm", `{"filter":{},"confirm":false}`: "confirm", `{"filter":{},"confirm":"true"}`: "confirm", `{"filter":{},"confirm":1}`: "confirm", `{"filter":{},"confirm":null}`: "confirm",
		`{"confirm":true}`: "filter", `{"filter":null,"confirm":true}`: "filter", `{"filter":[],"confirm":true}`: "filter", `{"filter":{},"confirm":true,"limit":5}`: "limit", `{"queue":"a","confirm":true}`: "queue",
		`{"filter":{"que":"a"},"confirm":true}`: "filter.que", `{"filter":{"Queue":"a"},"confirm":true}`: "filter.Queue", `{"filter":{"args":"a"},"confirm":true}`: "filter.args", `{"filter":{"older_than":"7d"},"confirm":true}`: "filter.older_than",
		`{"filter":{"queue":""},"confirm":true}`: "filter.queue", `{"filter":{"queue":null},"confirm":true}`: "filter.queue", `{"filter":{"queue":1},"confirm":true}`: "filter.queue", `{"filter":{"queue":"A"},"confirm":true}`: "filter.queue",
		`{"filter":{"type":"*a"},"confirm":true}`: "filter.type", `{"filter":{"error_type":[]},"confirm":true}`: "filter.error_type", `{"filter":{"since":"x"},"confirm":true}`: "filter.since", `{"filter":{"since":1},"confirm":true}`: "filter.since",
		`{"filter":{"since":null},"confirm":true}`: "filter.since", `{"filter":{"until":""},"confirm":true}`: "filter.until", `{"filter":{"since":"2026-11-21T10:00:00Z","until":"2026-11-21T09:00:00Z"},"confirm":true}`: "filter.until",
		`{"filter":{"queue":"a","queue":"b"},"confirm":true}`: "filter.queue", `{"Confirm":true,"filter":{}}`: "Confirm",
	} {
		_, err := spec.ParseBulkRetry([]byte(body))
		refused(t, body, err, 400, "invalid_request", field)
	}
}

func TestTypesThatAFilterSelects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter, kind string
		want         bool
	}{
		{"", "a.b", true}, {"*", "a.b", true}, {"a.b", "a.b", true}, {"a.b", "a.bc", false}, {"a.*", "a.b", true}, {"a.*", "a", false}, {"a*", "a", true}, {"a*", "ab.c", true}, {"a.b*", "a.c", false},
	} {
		if got := (spec.Filter{Type: c.filter}).MatchesType(c.kind); got != c.want {
			t.Errorf("%q selects %q: %v", c.filter, c.kind, got)
		}
	}
	if prefix, is := (spec.Filter{Type: "a.*"}).TypePrefix(); prefix != "a." || !is {
		t.Errorf("%q, %v", prefix, is)
	}
	if _, is := (spec.Filter{Type: "a"}).TypePrefix(); is {
		t.Error("a type is taken for a prefix")
	}
}

func TestCursorsReadBackAndNothingElseIsOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`).Draw(t, "id")
		c := spec.Cursor{DiscardedAt: time.UnixMicro(rapid.Int64Range(0, 253_370_764_799_999_999).Draw(t, "us")).UTC(), ID: id}
		got, err := spec.ParseCursor(c.String())
		if err != nil || got != c || url.QueryEscape(c.String()) != c.String() {
			t.Errorf("%+v reads as %+v, %v", c, got, err)
		}
	})
	good := spec.Cursor{DiscardedAt: now, ID: jobID}.String()
	for _, text := range []string{
		"", "x", good + "=", good + "A", good[1:], good[:len(good)-1], strings.ToUpper(good), " " + good, strings.Repeat("A", 129), "MS4xLg", "MS4xLmE",
		spec.Cursor{DiscardedAt: now, ID: strings.ToUpper(jobID)}.String(), spec.Cursor{DiscardedAt: now}.String(), spec.Cursor{DiscardedAt: time.UnixMicro(-1), ID: jobID}.String(),
		spec.Cursor{DiscardedAt: time.UnixMicro(math.MaxInt64), ID: jobID}.String(), spec.Cursor{ID: jobID}.String(),
		"Mi4x" + good[4:], // another version
		"MS4rMTc5NTI1NTIwMDAwMDAwMC4wMTk3YTFjMi0wMDAwLTcwMDAtODAwMC0wMDAwMDAwMDAwMDE", "MS4wMTc5NTI1NTIwMDAwMDAwMC4wMTk3YTFjMi0wMDAwLTcwMDAtODAwMC0wMDAwMDAwMDAwMDE", // other spellings of the time
	} {
		_, err := spec.ParseCursor(text)
		refused(t, text, err, 400, "invalid_request", "cursor")
	}
}
