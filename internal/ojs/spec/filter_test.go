package spec_test

import (
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

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
	for query, c := range map[string]struct {
		f spec.Filter
		p spec.Page
	}{
		"": {spec.Filter{}, spec.Page{Limit: 50}},
		"queue=billing&type=invoice.generate&error_type=DatabaseConnectionError&" + inRange: {spec.Filter{Queue: "billing", Type: "invoice.generate", ErrorType: "DatabaseConnectionError", Since: since, Until: until}, spec.Page{Limit: 50}},
		"type=invoice.*":                        {spec.Filter{Type: "invoice.*"}, spec.Page{Limit: 50}},
		"type=invoice*":                         {spec.Filter{Type: "invoice*"}, spec.Page{Limit: 50}},
		"type=*":                                {spec.Filter{Type: "*"}, spec.Page{Limit: 50}},
		"limit=1&offset=0":                      {spec.Filter{}, spec.Page{Limit: 1}},
		"limit=200&offset=7":                    {spec.Filter{}, spec.Page{Limit: 200, Offset: 7}},
		"limit=201":                             {spec.Filter{}, spec.Page{Limit: 200}},
		"limit=1000":                            {spec.Filter{}, spec.Page{Limit: 200}},
		"limit=99999999999999999999":            {spec.Filter{}, spec.Page{Limit: 200}},
		"limit=007":                             {spec.Filter{}, spec.Page{Limit: 7}},
		"offset=99999999999999999999":           {spec.Filter{}, spec.Page{Limit: 50, Offset: math.MaxInt32}},
		"cursor=abc_-":                          {spec.Filter{}, spec.Page{Limit: 50, After: "abc_-"}},
		"offset=0&cursor=abc":                   {spec.Filter{}, spec.Page{Limit: 50, After: "abc"}},
		"since=2026-11-21T09:00:00Z":            {spec.Filter{Since: since}, spec.Page{Limit: 50}},
		"since=2026-11-21T10%3A00%3A00%2B01:00": {spec.Filter{Since: since}, spec.Page{Limit: 50}},
	} {
		f, p, err := spec.ParseList(values(t, query))
		if err != nil || !sameFilter(f, c.f) || p.Limit != c.p.Limit || p.Offset != c.p.Offset || p.After != c.p.After {
			t.Errorf("%s: %+v, %+v, %v", query, f, p, err)
		}
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=-1": "limit", "limit=1.5": "limit", "limit=ten": "limit", "limit=": "limit", "limit=%2B5": "limit", "limit=5&limit=6": "limit", "limit=0x10": "limit",
		"offset=-1": "offset", "offset=a": "offset", "cursor=" + strings.Repeat("c", 513): "cursor", "cursor=": "cursor", "offset=1&cursor=abc": "cursor",
		"queue=": "queue", "queue=A": "queue", "queue=a&queue=b": "queue", "queue=a%00": "queue", "queue=%FF": "queue", "queue=" + strings.Repeat("q", 129): "queue",
		"type=": "type", "type=A": "type", "type=a**": "type", "type=*a": "type", "type=a..*": "type", "type=.*": "type", "type=a%25": "type",
		"error_type=": "error_type", "error_type=%00": "error_type", "error_type=" + strings.Repeat("e", 256): "error_type", "args=": "args",
		"since=yesterday": "since", "since=2026-11-21": "since", "since=2026-11-21T10:00:00": "since", "since=2026-11-21T10:00:00+01:00": "since", "until=7d": "until",
		"since=2026-11-21T10:00:00Z&until=2026-11-21T09:59:59.999999999Z": "until", "since=2026-11-21T10:00:00Z&until=2026-11-21T10:00:00Z": "until",
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
		"older_than=P100Y1200M36500D":              {Queue: "?"}, // the sum overflows: as a negative age it would select everything
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
	for query, field := range map[string]string{"": "confirm", "queue=a": "confirm", "older_than=7d&confirm=false": "confirm", "older_than=x": "older_than", "older_than=P100Y1200M36500D": "older_than", "older_than=7d&x=1": "x"} {
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
