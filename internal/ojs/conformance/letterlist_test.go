package conformance_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// Section 10: the list of dead letters, its pages and filters, and statistics.

func TestDLQ_006_AnEntryHasWhatTheExampleHas(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.dead().text("id")
	page := get(t, letters+"?queue="+q.name).must(200)
	page.is("total", 1)
	page.object("pagination").are(members{"total": 1, "has_more": false, "limit": 50, "offset": 0})
	page.object("pagination").lacks("next_cursor")
	entry := page.objects("jobs")[0]
	entry.are(members{"id": id, "type": q.kind, "queue": q.name, "args": []any{"tx_1"}, "state": "discarded", "attempt": 1, "max_attempts": 1})
	entry.instant("created_at")
	entry.instant("discarded_at")
	entry.object("error").are(members{"code": "handler_error", "type": "TestError", "message": "it failed"})
	entry.failures()[0].instant("occurred_at")
	for _, shown := range []object{entry, letter(t, id)} {
		shown.object("metadata").are(members{"created_at": entry.text("created_at"), "discarded_at": entry.text("discarded_at")})
	}
	retry(t, id).lacks("metadata")
	own := q.dead(members{"metadata": members{"of": "the client"}, "priority": 9})
	letter(t, own.text("id")).is("metadata", members{"of": "the client"})
	get(t, letters+"?queue="+q.name+"-none").must(200).are(members{"jobs": []any{}, "total": 0})
}

func TestDLQ_006_PagesNeitherRepeatNorSkip(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	want := q.deadMany(25)
	for _, how := range []string{"cursor", "offset"} {
		seen := map[string]bool{}
		next := "limit=7&queue=" + q.name
		for n := 0; next != "" && n < 10; n++ {
			page := get(t, letters+"?"+next).must(200)
			jobs, p := page.objects("jobs"), page.object("pagination")
			p.is("total", 25)
			if len(jobs) > 7 || p.flag("has_more") != (len(seen)+len(jobs) < 25) || p.flag("has_more") != p.has("next_cursor") {
				t.Errorf("%s: %d jobs after %d, %s", how, len(jobs), len(seen), text(p.members))
			}
			for _, id := range ids(jobs) {
				if seen[id] || !want[id] {
					t.Errorf("%s: %s is listed twice, or is none of the queue", how, id)
				}
				seen[id] = true
			}
			switch {
			case !p.flag("has_more"):
				next = ""
			case how == "cursor":
				next = "limit=7&queue=" + q.name + "&cursor=" + url.QueryEscape(p.text("next_cursor"))
			default:
				next = "limit=7&queue=" + q.name + "&offset=" + text(len(seen))
			}
		}
		if len(seen) != 25 {
			t.Errorf("%s: %d of 25", how, len(seen))
		}
	}
}

// Whoever turns pages while letters come and go sees each that stays exactly once.
func TestDLQ_006_PagesAreStableWhileLettersComeAndGo(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	stay := q.deadMany(20)
	first := get(t, letters+"?limit=8&queue="+q.name).must(200)
	seen := ids(first.objects("jobs"))
	retry(t, seen[0])
	gone := seen[0]
	q.ack(q.fetch().text("id"))
	added := q.dead().text("id")
	cursor := first.object("pagination").text("next_cursor")
	for cursor != "" {
		page := get(t, letters+"?limit=8&queue="+q.name+"&cursor="+url.QueryEscape(cursor)).must(200)
		seen = append(seen, ids(page.objects("jobs"))...)
		cursor = ""
		if page.object("pagination").flag("has_more") {
			cursor = page.object("pagination").text("next_cursor")
		}
	}
	slices.Sort(seen)
	if n := len(slices.Compact(slices.Clone(seen))); n != len(seen) || n != len(stay) || slices.Contains(seen, added) || !slices.Contains(seen, gone) {
		t.Errorf("%d entries, %d distinct, of %d", len(seen), n, len(stay))
	}
}

func TestLST_01_TheNewestDeathIsFirst(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var want []string
	for range 4 {
		want = append([]string{q.dead().text("id")}, want...)
	}
	if got := ids(listed(t, "queue="+q.name)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestLST_02_Limits(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.dead()
	for query, limit := range map[string]int{"": 50, "limit=1": 1, "limit=200": 200, "limit=201": 200, "limit=1000": 200} {
		get(t, letters+"?queue="+q.name+"&"+query).must(200).object("pagination").is("limit", limit)
	}
	get(t, letters+"?offset=5&queue="+q.name).must(200).are(members{"jobs": []any{}, "total": 1})
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=-1": "limit", "limit=x": "limit", "limit=1.5": "limit", "limit=1&limit=2": "limit", "offset=-1": "offset", "offset=x": "offset", "cursor=x": "cursor",
		"since_=2026-01-01T00:00:00Z": "since_", "since=2026-01-01": "since", "since=2026-01-01T00:00:00": "since", "until=7d": "until", "queue=Q": "queue", "type=A": "type", "Queue=q": "Queue", "page=1": "page",
	} {
		get(t, letters+"?"+query).refused(400, "invalid_request").field(field)
	}
}

func TestDLQ_R005_Filters(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	other := *q
	other.kind = q.kind + ".other"
	a := q.deadOf(failure(members{"type": "TimeoutError"})).text("id")
	<-time.After(5 * time.Millisecond) // so that the times of death differ in their milliseconds
	b := other.deadOf(failure(members{"type": "ParseError"}))
	at := b.text("discarded_at")
	both := []string{b.text("id"), a}
	for query, want := range map[string][]string{
		"": both, "type=" + q.kind: {a}, "type=" + q.kind + "*": both, "type=" + q.kind + ".*": {b.text("id")}, "error_type=TimeoutError": {a}, "error_type=ParseError": {b.text("id")}, "error_type=Timeout": {},
		"since=" + at: {b.text("id")}, "until=" + at: {a}, "type=" + q.kind + "&error_type=ParseError": {},
	} {
		page := get(t, letters+"?queue="+q.name+"&"+query).must(200)
		if got := ids(page.objects("jobs")); !slices.Equal(got, want) || page.whole("total") != len(want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

// The extension recommends a search by args.
func TestDLQ_R005_ArgsAreSearched(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	var want []string
	const letterCount = 46
	for i := range letterCount {
		id := q.dead(members{"args": []any{members{"customer": "c-" + text(i%23), "name": "Zoë <1>"}}}).text("id")
		if i%23 == 7 {
			want = append(want, id)
		}
	}
	search := func(part, more string) (found []string) {
		for cursor := ""; ; {
			page := get(t, letters+"?queue="+q.name+"&limit=3&args="+url.QueryEscape(part)+more+cursor).must(200)
			found = append(found, ids(page.objects("jobs"))...)
			page.lacks("total")
			if next := page.object("pagination"); next.flag("has_more") {
				cursor = "&cursor=" + url.QueryEscape(next.text("next_cursor"))
				continue
			}
			return found
		}
	}
	found := search(`"customer":"c-7"`, "")
	if slices.Reverse(found); !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	if found := search("c-7", "&error_type=Other"); len(found) != 0 {
		t.Errorf("%v of another error", found)
	}
	if found := search("Zoë <1>", ""); len(found) != letterCount {
		t.Errorf("%d letters by a text that JSON may escape", len(found))
	}
	if found := search("customer: c-7", ""); len(found) != 0 {
		t.Errorf("%v", found)
	}
	get(t, letters+"?args=x&offset=1").refused(400, "invalid_request").field("args")
	get(t, letters+"?args=").refused(400, "invalid_request").field("args")
	remove(t, letters+"?confirm=true&args=x&queue="+q.name).refused(400, "invalid_request").field("args")
}

func TestDLQ_R004_StatisticsAgreeWithTheList(t *testing.T) {
	reset(t)
	empty := get(t, letters+"/stats").must(200)
	empty.are(members{"total": 0, "by_queue": members{}, "by_type": members{}, "by_error_type": members{}})
	empty.lacks("oldest_at", "newest_at")
	q, other := newQueue(t), newQueue(t)
	first := q.deadOf(failure(members{"type": "A"}))
	q.deadOf(failure(members{"type": "B"}))
	last := other.deadOf(failure(members{"type": "B"}))
	stats := get(t, letters+"/stats").must(200)
	stats.are(members{
		"total": 3, "by_queue": members{q.name: 2, other.name: 1}, "by_type": members{q.kind: 2, other.kind: 1}, "by_error_type": members{"A": 1, "B": 2},
		"oldest_at": first.text("discarded_at"), "newest_at": last.text("discarded_at"),
	})
	stats.object("retention").is("max_age", "P180D")
	stats.object("retention").instant("next_prune_at")
	get(t, letters).must(200).is("total", 3)
	get(t, letters+"/stats?queue=x").refused(400, "invalid_request").field("queue")
}

func TestLST_03_MembersOfClientsDoNotBreakTheList(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.dead(members{"args": []any{strings.Repeat("x", 300_000)}})
	q.dead(members{"args": []any{}})
	if list := listed(t, "queue="+q.name); len(list) != 2 {
		t.Errorf("%d", len(list))
	}
}
