package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

// Every body has the limit of bodies, and must be one JSON object.
func TestBodiesOfRequests(t *testing.T) {
	t.Parallel()
	parse := map[string]func([]byte) error{
		"fetch":     func(b []byte) error { _, err := spec.ParseFetch(b); return err },
		"ack":       func(b []byte) error { _, err := spec.ParseAck(b); return err },
		"nack":      func(b []byte) error { _, err := spec.ParseNack(b); return err },
		"heartbeat": func(b []byte) error { _, err := spec.ParseHeartbeat(b); return err },
		"bulk":      func(b []byte) error { _, err := spec.ParseBulkRetry(b); return err },
		"rule":      func(b []byte) error { _, err := spec.ParseRule(b); return err },
		"retry":     func(b []byte) error { _, err := spec.ParseRetry(b); return err },
	}
	for name, f := range parse {
		for _, body := range []string{`[]`, `null`, `"x"`, `7`, `{`, `{"a":1}{}`, `{a:1}`, strings.Repeat("[", 10_000)} {
			refused(t, name+" "+body[:min(len(body), 20)], f([]byte(body)), 400, "invalid_payload", "")
		}
		if name != "ack" && name != "nack" { // which take an answer all the same
			refused(t, name, f([]byte("{\"a\":\"\xff\"}")), 400, "invalid_payload", "")
		}
		if name != "retry" {
			refused(t, name, f(nil), 400, "invalid_payload", "")
		}
		refused(t, name, f([]byte(`{"a":"`+strings.Repeat("x", spec.MaxBody)+`"}`)), 413, "payload_too_large", "")
	}
}

// No refusal of a body repeats a value that it holds, wherever that stands and whatever it is.
func TestRefusalsRepeatNoValue(t *testing.T) {
	t.Parallel()
	const secret = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
	values := []string{`"` + secret + `"`, `["` + secret + `"]`, `{"a":"` + secret + `"}`, `{"a":"` + secret + `","a":1}`, `"` + secret + `\ud800"`, `"` + secret + `\u0000"`}
	names := []string{
		"specversion", "id", "type", "queue", "args", "meta", "priority", "timeout", "timeout_ms", "scheduled_at", "delay_until", "expires_at", "retry", "retry_policy",
		"unique", "schema", "tags", "options", "visibility_timeout", "pending", "x_own",
	}
	check := func(what string, err error) {
		t.Helper()
		if err == nil {
			return
		}
		e := err.(*spec.Error)
		if text := fmt.Sprintf("%+v %s %s", *e, e.Error(), e.Body("req_1")); strings.Contains(text, "4eC39") {
			t.Errorf("%s: %s", what, text)
		}
	}
	for _, value := range values {
		for _, name := range names {
			if !slices.Contains([]string{"type", "args"}, name) {
				_, err := spec.ParseJob([]byte(withMembers(`"`+name+`":`+value)), now)
				check(name, err)
			}
			_, err := spec.ParseJob([]byte(`{"`+name+`":`+value+`}`), now)
			check(name, err)
			_, err = spec.ParseJob([]byte(withMembers(`"options":{"`+name+`":`+value+`}`)), now)
			check("options."+name, err)
		}
		for _, name := range []string{"max_attempts", "initial_interval", "initial_interval_ms", "backoff_coefficient", "max_interval", "jitter", "non_retryable_errors", "on_exhaustion", "backoff_type", "x"} {
			_, err := spec.ParseJob([]byte(withMembers(`"retry":{"`+name+`":`+value+`}`)), now)
			check("retry."+name, err)
		}
		for _, name := range []string{"keys", "args_keys", "meta_keys", "period", "period_ms", "states", "on_conflict", "key", "x"} {
			_, err := spec.ParseJob([]byte(withMembers(`"unique":{"`+name+`":`+value+`}`)), now)
			check("unique."+name, err)
		}
		for _, name := range []string{"queues", "count", "worker_id", "visibility_timeout_ms", "job_id", "attempt", "error", "requeue", "active_jobs", "filter", "confirm", "override", "name", "delay"} {
			body := []byte(`{"` + name + `":` + value + `}`)
			_, err := spec.ParseFetch(body)
			check("fetch "+name, err)
			_, err = spec.ParseAck(body)
			check("ack "+name, err)
			_, err = spec.ParseNack(body)
			check("nack "+name, err)
			_, err = spec.ParseHeartbeat(body)
			check("heartbeat "+name, err)
			_, err = spec.ParseBulkRetry(body)
			check("bulk "+name, err)
			_, err = spec.ParseRetry(body)
			check("retry "+name, err)
			_, err = spec.ParseRule(body)
			check("rule "+name, err)
			_, err = spec.Override([]byte(withMembers("")), body, spec.RunSettings{})
			check("override "+name, err)
		}
	}
}
