package conformance_test

import (
	"strings"
	"testing"
)

// What bad input gets: a refusal in the format of the specification that names the member, and no effect.

func TestBAD_01_WrongTypesInEveryMember(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for field, values := range map[string][]string{
		"type": {`7`, `null`, `""`, `["a"]`}, "queue": {`7`, `null`, `""`, `"Q"`, `[]`}, "args": {`{}`, `"x"`, `7`, `true`, `null`}, "meta": {`[]`, `"x"`, `7`}, "priority": {`"1"`, `1.5`, `101`, `-101`, `null`, `1e2`},
		"id": {`7`, `""`, `"x"`, `null`, `"0197A1C2-0000-7000-8000-000000000001"`, `"550e8400-e29b-41d4-a716-446655440000"`}, "scheduled_at": {`7`, `"tomorrow"`, `"2026-01-01"`, `"-PT1S"`}, "expires_at": {`7`, `"x"`},
		"tags": {`"x"`, `[1]`}, "options": {`[]`, `7`, `"x"`}, "unique": {`7`, `[]`, `"x"`}, "schema": {`7`}, "timeout": {`"1"`, `-1`, `1.5`},
	} {
		for _, value := range values {
			q.refuses(400, "invalid_request", q.body(members{field: literal(value)})).naming(field)
		}
	}
	for _, value := range []string{`7`, `[]`, `"x"`, `null`} {
		q.refuses(422, "validation_error", q.body(members{"retry": literal(value)})).naming("retry")
	}
	q.refuses(422, "unsupported", q.body(members{"specversion": "2.0"}))
}

func TestBAD_02_TextsThatMeanTwoThings(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	around := func(more string) string {
		return `{"type":"` + q.kind + `","queue":"` + q.name + `","args":[]` + more + `}`
	}
	for name, body := range map[string]string{
		"a member twice": around(`,"priority":1,"priority":2`), "one inside": around(`,"meta":{"a":1,"a":2}`), "another case": around(`,"Priority":1`), "half a surrogate pair": around(`,"meta":{"a":"\ud800"}`), "U+0000": around(`,"meta":{"a":"\u0000"}`),
		"two that differ": around(`,"options":{"queue":"other"}`),
	} {
		if a := post(t, root+"/jobs", body); a.status != 400 {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	for name, body := range map[string]any{
		"nothing": nil, "blanks": "  ", "half": `{"type":`, "a list": `[]`, "a text": `"x"`, "two": around("") + around(""), "not UTF-8": []byte("{\"type\":\"\xff\"}"), "a byte order mark": "\ufeff" + around(""), "deep": around(`,"meta":{"a":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`),
	} {
		a := post(t, root+"/jobs", body)
		a.name = name
		a.refused(400, "invalid_payload")
	}
	q.isEmpty()
}

func TestBAD_03_Sizes(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	limits := get(t, "/ojs/manifest").must(200).object("limits")
	for name, want := range map[string]int{"max_body_bytes": 1 << 20, "max_meta_bytes": 64 << 10} {
		limits.is(name, want)
	}
	q.enqueue(members{"args": []any{strings.Repeat("x", 1<<20-1000)}})
	post(t, root+"/jobs", q.body(members{"args": []any{strings.Repeat("x", 1<<20)}})).refused(413, "payload_too_large")
	post(t, root+"/jobs", q.body(members{"meta": members{"a": strings.Repeat("x", 64<<10)}})).refused(413, "payload_too_large")
	id := q.fetch().text("id")
	q.askAck(id, members{"result": strings.Repeat("x", 64<<10)}).must(200) // the job is done
	done := find(t, id)
	done.is("state", "completed")
	done.object("result").is("too_long", 64<<10+2)
}

func TestBAD_04_SecretsAreRefusedByTheirPlace(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	secret := "4111 1111 1111 1111"
	for field, with := range map[string]members{
		"args": {"args": []any{members{"card": secret}}}, "meta": {"meta": members{"password": "hunter2"}},
	} {
		a := post(t, root+"/jobs", q.body(with))
		a.refused(400, "invalid_request").naming(field)
		if strings.Contains(string(a.raw), secret) || strings.Contains(string(a.raw), "hunter2") {
			t.Errorf("%s: the refusal repeats it", field)
		}
	}
	q.isEmpty()
}

func TestBAD_05_NumbersStayAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	args := literal(`[1e400,9007199254740993,1.0,-0,0.1e-7]`)
	id := q.enqueue(members{"args": args}).text("id")
	find(t, id).is("args", args)
	q.fetch().is("args", args)
}
