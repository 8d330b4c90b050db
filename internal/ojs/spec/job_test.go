package spec_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/retrypolicy"
)

var defaultPolicy = retrypolicy.Policy{
	MaxRetryAttempts: 3, BaseDelay: time.Second, MaxDelay: 5 * time.Minute, Backoff: retrypolicy.Exponential, Coefficient: 2, Jitter: 0.5, OnExhaustion: retrypolicy.Discard,
}

func TestAMinimalJobHasTheDefaults(t *testing.T) {
	t.Parallel()
	job := parsed(t, `{"type":"email.send","args":[]}`)
	if job.ID != "" || job.Type != "email.send" || job.Queue != "default" || job.Priority != 0 || !job.NotBefore.IsZero() || !job.ExpiresAt.IsZero() || job.Pending ||
		job.Timeout != 0 || job.Visibility != 0 || job.Unique != nil || job.Policy.Encode() != defaultPolicy.Encode() || string(job.Stored) != `{"type":"email.send","args":[]}` {
		t.Errorf("%+v, %s", job, job.Stored)
	}
}

// Each alias, by itself, means what the member of the specification means, and is stored as it.
func TestAliasesMeanTheSame(t *testing.T) {
	t.Parallel()
	at := time.Date(2099, 12, 31, 23, 59, 59, 0, time.UTC)
	for body, c := range map[string]struct {
		want   func(spec.Job) bool
		stored string // the members after type and args
	}{
		`"queue":"a"`:                 {func(j spec.Job) bool { return j.Queue == "a" }, `"queue":"a"`},
		`"options":{"queue":"a"}`:     {func(j spec.Job) bool { return j.Queue == "a" }, `"queue":"a"`},
		`"priority":-100`:             {func(j spec.Job) bool { return j.Priority == -100 }, `"priority":-100`},
		`"options":{"priority":100}`:  {func(j spec.Job) bool { return j.Priority == 100 }, `"priority":100`},
		`"options":{"tags":["x"]}`:    {func(j spec.Job) bool { return true }, `"tags":["x"]`},
		`"tags":["x" , "y"]`:          {func(j spec.Job) bool { return true }, `"tags":["x" , "y"]`},
		`"options":{"metadata":{}}`:   {func(j spec.Job) bool { return true }, `"meta":{}`},
		`"options":{}`:                {func(j spec.Job) bool { return true }, ``},
		`"options":{"rate_limit":{}}`: {func(j spec.Job) bool { return true }, `"options":{"rate_limit":{}}`},
		`"meta":{"a":1},"options":{"metadata":{"b":2.0,"a": 1 }}`:        {func(j spec.Job) bool { return true }, `"meta":{"a":1,"b":2.0}`},
		`"scheduled_at":"2099-12-31T23:59:59Z"`:                          {func(j spec.Job) bool { return j.NotBefore.Equal(at) }, `"scheduled_at":"2099-12-31T23:59:59Z"`},
		`"delay_until":"2099-12-31T23:59:59Z"`:                           {func(j spec.Job) bool { return j.NotBefore.Equal(at) }, `"scheduled_at":"2099-12-31T23:59:59Z"`},
		`"options":{"delay_until":"2099-12-31T23:59:59Z"}`:               {func(j spec.Job) bool { return j.NotBefore.Equal(at) }, `"scheduled_at":"2099-12-31T23:59:59Z"`},
		`"options":{"scheduled_at":"2100-01-01T00:59:59+01:00"}`:         {func(j spec.Job) bool { return j.NotBefore.Equal(at) }, `"scheduled_at":"2100-01-01T00:59:59+01:00"`},
		`"options":{"scheduled_at":"+PT5S"}`:                             {func(j spec.Job) bool { return j.NotBefore.Equal(now.Add(5 * time.Second)) }, `"scheduled_at":"2026-11-21T10:00:05.000Z"`},
		`"scheduled_at":"+P1DT0.0001S"`:                                  {func(j spec.Job) bool { return j.NotBefore.Equal(now.Add(24*time.Hour + time.Millisecond)) }, `"scheduled_at":"2026-11-22T10:00:00.001Z"`},
		`"scheduled_at":"2020-01-01T00:00:00Z"`:                          {func(j spec.Job) bool { return j.NotBefore.Before(now) }, `"scheduled_at":"2020-01-01T00:00:00Z"`},
		`"expires_at":"2099-12-31T23:59:59Z"`:                            {func(j spec.Job) bool { return j.ExpiresAt.Equal(at) }, `"expires_at":"2099-12-31T23:59:59Z"`},
		`"options":{"expires_at":"+PT2S"}`:                               {func(j spec.Job) bool { return j.ExpiresAt.Equal(now.Add(2 * time.Second)) }, `"expires_at":"2026-11-21T10:00:02.000Z"`},
		`"scheduled_at":null,"expires_at":null,"delay_until":null`:       {func(j spec.Job) bool { return j.NotBefore.IsZero() && j.ExpiresAt.IsZero() }, ``},
		`"options":{"delay_until":null,"expires_at":null,"unique":null}`: {func(j spec.Job) bool { return j.NotBefore.IsZero() && j.Unique == nil }, ``},
		`"options":{"pending":true}`:                                     {func(j spec.Job) bool { return j.Pending }, `"options":{"pending":true}`},
		`"pending":true`:                                                 {func(j spec.Job) bool { return j.Pending }, `"options":{"pending":true}`},
		`"options":{"pending":false}`:                                    {func(j spec.Job) bool { return !j.Pending }, `"options":{"pending":false}`},
		`"timeout":30`:                                                   {func(j spec.Job) bool { return j.Timeout == 30*time.Second }, `"timeout":30,"options":{"timeout_ms":30000}`},
		`"timeout":0`:                                                    {func(j spec.Job) bool { return j.Timeout == 0 }, `"timeout":0,"options":{"timeout_ms":0}`},
		`"timeout_ms":1500`:                                              {func(j spec.Job) bool { return j.Timeout == 1500*time.Millisecond }, `"options":{"timeout_ms":1500}`},
		`"options":{"timeout_ms":1}`:                                     {func(j spec.Job) bool { return j.Timeout == time.Millisecond }, `"options":{"timeout_ms":1}`},
		`"visibility_timeout":45`:                                        {func(j spec.Job) bool { return j.Visibility == 45*time.Second }, `"visibility_timeout":45,"options":{"visibility_timeout_ms":45000}`},
		`"visibility_timeout":"PT1M"`:                                    {func(j spec.Job) bool { return j.Visibility == time.Minute }, `"visibility_timeout":"PT1M","options":{"visibility_timeout_ms":60000}`},
		`"options":{"visibility_timeout":"PT1.5S"}`:                      {func(j spec.Job) bool { return j.Visibility == 1500*time.Millisecond }, `"options":{"visibility_timeout_ms":1500}`},
		`"options":{"visibility_timeout":"PT1.0009S"}`:                   {func(j spec.Job) bool { return j.Visibility == time.Second }, `"options":{"visibility_timeout_ms":1000}`},
		`"options":{"visibility_timeout":2}`:                             {func(j spec.Job) bool { return j.Visibility == 2*time.Second }, `"options":{"visibility_timeout_ms":2000}`},
		`"options":{"visibility_timeout_ms":86400000}`:                   {func(j spec.Job) bool { return j.Visibility == spec.MaxTimeout }, `"options":{"visibility_timeout_ms":86400000}`},
		`"retry":{ "max_attempts":5}`:                                    {func(j spec.Job) bool { return j.Policy.MaxRetryAttempts == 5 }, `"retry":{ "max_attempts":5}`},
		`"retry_policy":{"max_attempts":5}`:                              {func(j spec.Job) bool { return j.Policy.MaxRetryAttempts == 5 }, `"retry":{"max_attempts":5}`},
		`"options":{"retry":{"max_attempts":5}}`:                         {func(j spec.Job) bool { return j.Policy.MaxRetryAttempts == 5 }, `"retry":{"max_attempts":5}`},
		`"options":{"retry_policy":{"max_attempts":5}}`:                  {func(j spec.Job) bool { return j.Policy.MaxRetryAttempts == 5 }, `"retry":{"max_attempts":5}`},
		`"options":{"retry":{"jitter":false,"max_interval_ms":1500}}`:    {func(j spec.Job) bool { return j.Policy.MaxDelay == 1500*time.Millisecond }, `"retry":{"jitter":false,"max_interval":"PT1.5S"}`},
		`"options":{"retry":{"initial_interval_ms":2000,"backoff_type":"linear"}}`: {func(j spec.Job) bool {
			return j.Policy.BaseDelay == 2*time.Second && j.Policy.Backoff == retrypolicy.Linear
		}, `"retry":{"initial_interval":"PT2S","backoff_strategy":"linear"}`},
		`"retry":{"initial_interval":"PT2S","initial_interval_ms":2000}`:             {func(j spec.Job) bool { return j.Policy.BaseDelay == 2*time.Second }, `"retry":{"initial_interval":"PT2S"}`},
		`"unique":{"period_ms":1000,"on_conflict":"use_existing"}`:                   {func(j spec.Job) bool { return j.Unique.Period == time.Second && j.Unique.OnConflict == spec.Ignore }, `"unique":{"period":"PT1S","on_conflict":"ignore"}`},
		`"options":{"unique":{"keys":["type"]}}`:                                     {func(j spec.Job) bool { return j.Unique.OnConflict == spec.Reject }, `"unique":{"keys":["type"]}`},
		`"unique":{"keys":["type"],"args_keys":null,"meta_keys":null,"period":null}`: {func(j spec.Job) bool { return j.Unique.Period == 0 }, `"unique":{"keys":["type"],"args_keys":null,"meta_keys":null,"period":null}`},
		`"id":"` + jobID + `"`: {func(j spec.Job) bool { return j.ID == jobID }, `"id":"` + jobID + `"`},
		`"specversion":"1.0.0-rc.1","schema":"urn:ojs:schema:a:v1"`: {func(j spec.Job) bool { return true }, `"specversion":"1.0.0-rc.1","schema":"urn:ojs:schema:a:v1"`},
	} {
		job := parsed(t, withMembers(body))
		want := withMembers(c.stored)
		if !c.want(job) || string(job.Stored) != want {
			t.Errorf("%s: %+v\nstored %s, want\n       %s", body, job, job.Stored, want)
		}
	}
}

// What is said twice and alike is taken; what contradicts itself is refused, under the second name.
func TestAnOptionInTwoPlacesMustSayTheSame(t *testing.T) {
	t.Parallel()
	for body, field := range map[string]string{
		`"queue":"a","options":{"queue":"a"}`:                                                            "",
		`"queue":"a","options":{"queue":"b"}`:                                                            "options.queue",
		`"queue":"default","options":{"queue":"b"}`:                                                      "options.queue",
		`"priority":1,"options":{"priority":1}`:                                                          "",
		`"priority":1,"options":{"priority":2}`:                                                          "options.priority",
		`"tags":["a"],"options":{"tags":[ "a" ]}`:                                                        "",
		`"tags":["a"],"options":{"tags":["b"]}`:                                                          "options.tags",
		`"meta":{"a":1},"options":{"metadata":{"a":1}}`:                                                  "",
		`"meta":{"a":1},"options":{"metadata":{"a":2}}`:                                                  "options.metadata",
		`"scheduled_at":"2027-01-01T00:00:00Z","delay_until":"2027-01-01T01:00:00+01:00"`:                "",
		`"scheduled_at":"2027-01-01T00:00:00Z","delay_until":"2027-01-01T01:00:00Z"`:                     "delay_until",
		`"scheduled_at":"2027-01-01T00:00:00Z","options":{"delay_until":"2027-01-01T00:00:01Z"}`:         "options.delay_until",
		`"options":{"delay_until":"2027-01-01T00:00:01Z","scheduled_at":"2027-01-01T00:00:00Z"}`:         "options.delay_until",
		`"expires_at":"2027-01-01T00:00:00Z","options":{"expires_at":"2027-01-02T00:00:00Z"}`:            "options.expires_at",
		`"pending":true,"options":{"pending":false}`:                                                     "options.pending",
		`"timeout":30,"options":{"timeout_ms":30000}`:                                                    "",
		`"timeout":30,"options":{"timeout_ms":30001}`:                                                    "timeout",
		`"timeout_ms":1,"options":{"timeout_ms":2}`:                                                      "options.timeout_ms",
		`"visibility_timeout":30,"options":{"visibility_timeout":"PT30S","visibility_timeout_ms":30000}`: "",
		`"visibility_timeout":30,"options":{"visibility_timeout_ms":30}`:                                 "options.visibility_timeout_ms",
		`"visibility_timeout":30,"options":{"visibility_timeout":"PT30M"}`:                               "options.visibility_timeout",
		`"unique":{"keys":["type"]},"options":{"unique":{"keys":[ "type"]}}`:                             "",
		`"unique":{"keys":["type"]},"options":{"unique":{"keys":["queue"]}}`:                             "options.unique",
	} {
		_, err := spec.ParseJob([]byte(withMembers(body)), now)
		if field == "" && err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if field != "" {
			refused(t, body, err, 400, "invalid_request", field)
		}
	}
	for body, field := range map[string]string{
		`"retry":{"max_attempts":1},"options":{"retry":{"max_attempts":1 }}`: "",
		`"retry":{"max_attempts":1},"options":{"retry":{"max_attempts":2}}`:  "options.retry",
		`"options":{"retry":{"max_attempts":1},"retry_policy":{}}`:           "options.retry_policy",
		`"retry":{"initial_interval":"PT2S","initial_interval_ms":3000}`:     "retry.initial_interval_ms",
		`"retry":{"backoff_strategy":"linear","backoff_type":"constant"}`:    "retry.backoff_type",
		`"retry":{"backoff_strategy":"linear","backoff_type":"linear"}`:      "",
		`"options":{"retry":{"max_interval":"PT2S","max_interval_ms":3000}}`: "options.retry.max_interval_ms",
	} {
		_, err := spec.ParseJob([]byte(withMembers(body)), now)
		if field == "" && err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if field != "" {
			refused(t, body, err, 422, "validation_error", field)
		}
	}
}

func TestBodiesThatAreNoJSONObjectAreInvalidPayloads(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 10_000)
	for _, body := range []string{
		"", " \n", "{ invalid json }", `{"type":"a"`, `{"type":"a","args":[]}x`, `[]`, `"a"`, `1`, `null`, `true`, "\ufeff{}", "{\"type\":\"\xff\"}", "{\"type\":\"a\x00\"}", "{\"a\":\"\xed\xa0\x80\"}",
		`{"type":"a","args":` + deep + `}`, `{"type":"a","args":` + deep + strings.Repeat("]", 10_000) + `}`, `{"type":"a","args":[NaN]}`, `{"type":"a","args":[01]}`, `{'type':'a'}`,
		`{"type":"a","args":[],"a\u0000":1}`, strings.Repeat(`{"a":`, 100_000),
	} {
		_, err := spec.ParseJob([]byte(body), now)
		refused(t, fmt.Sprintf("%.30q", body), err, 400, "invalid_payload", "")
	}
}

// The refusals of section 5, and every member with a value of another type.
func TestJobsThatAreRefused(t *testing.T) {
	t.Parallel()
	for body, field := range map[string]string{
		`{"args":[]}`:                                                           "type",
		`{"type":null,"args":[]}`:                                               "type",
		`{"type":"","args":[]}`:                                                 "type",
		`{"type":1,"args":[]}`:                                                  "type",
		`{"type":"Email","args":[]}`:                                            "type",
		`{"type":"a..b","args":[]}`:                                             "type",
		`{"type":"a"}`:                                                          "args",
		`{"type":"a","args":{"to":"x"}}`:                                        "args",
		`{"type":"a","args":"x"}`:                                               "args",
		`{"type":"a","args":1}`:                                                 "args",
		`{"type":"a","args":true}`:                                              "args",
		`{"type":"a","args":null}`:                                              "args",
		`{"type":"a","args":[],"Queue":1}`:                                      "Queue",
		`{"type":"a","args":[],"type":"a"}`:                                     "type",
		`{"type":"a","t\u0079pe":"b","args":[]}`:                                "type",
		`{"type":"a","args":["\ud800"]}`:                                        "args",
		`{"type":"a","args":["\udc00"]}`:                                        "args",
		`{"type":"a","args":["\u0000"]}`:                                        "args",
		`{"type":"a","args":[{"\u0000":1}]}`:                                    "args",
		`{"type":"a","args":[{"a":1,"a":1}]}`:                                   "args.a",
		`{"type":"\u0000","args":[]}`:                                           "type",
		`{"type":"a","args":[],"State":"x"}`:                                    "State",
		`{"type":"a","args":[],"erRor":{}}`:                                     "erRor",
		`{"type":"a","args":[],"options":{"Queue":"a"}}`:                        "options.Queue",
		`{"type":"a","args":[],"options":{"delayUntil":"x","delay_Until":"y"}}`: "options.delay_Until",
		`{"type":"a","args":[],"x":{"b":1,"b":2}}`:                              "x.b",
	} {
		_, err := spec.ParseJob([]byte(body), now)
		refused(t, body, err, 400, "invalid_request", field)
	}
	wrong := map[string][]string{
		"string": {`1`, `true`, `[]`, `{}`}, "number": {`"1"`, `true`, `[]`, `{}`}, "boolean": {`"true"`, `1`, `[]`, `{}`}, "list": {`"a"`, `1`, `true`, `{}`}, "object": {`"a"`, `1`, `true`, `[]`},
	}
	for name, c := range map[string]struct {
		kind   string
		null   bool // null is refused as well
		values []string
	}{
		"specversion":  {"string", true, nil},
		"id":           {"string", true, []string{`""`, `"550e8400-e29b-41d4-a716-446655440000"`, `"` + strings.ToUpper(jobID) + `"`, `"not-a-uuid-at-all"`}},
		"queue":        {"string", true, []string{`""`, `"Default"`, `"-a"`, `"a_b"`, `"` + strings.Repeat("q", 129) + `"`}},
		"priority":     {"number", true, []string{`101`, `-101`, `1.5`, `1e1`, `5.0`, `99999999999999999999`}},
		"meta":         {"object", true, nil},
		"options":      {"object", true, nil},
		"schema":       {"string", true, nil},
		"tags":         {"list", true, []string{`[1]`, `[""]`, `[null]`, `["a",["b"]]`}},
		"timeout":      {"number", true, []string{`-1`, `86401`, `0.5`, `1e3`}},
		"timeout_ms":   {"number", true, []string{`-1`, `86400001`, `0.5`}},
		"scheduled_at": {"string", false, []string{`""`, `"2026-11-21T10:00:00"`, `"-PT5S"`, `"PT5S"`, `"+P"`, `"+-PT5S"`, `"+P1W"`, `"tomorrow"`, `"0001-01-01T00:00:00Z"`, `"+P101Y"`}},
		"delay_until":  {"string", false, []string{`"2026-11-21T10:00:00"`}},
		"expires_at":   {"string", false, []string{`"2026-11-21"`, `"-PT5S"`}},
		"pending":      {"boolean", true, nil},
		"unique":       {"object", false, []string{`{"x":1}`}},
	} {
		values := append(c.values, wrong[c.kind]...)
		if c.null {
			values = append(values, `null`)
		}
		for _, value := range values {
			field := name
			if value == `{"x":1}` {
				field += ".x"
			}
			status, code := 400, "invalid_request"
			_, err := spec.ParseJob([]byte(withMembers(`"`+name+`":`+value)), now)
			refused(t, name+" "+value, err, status, code, field)
			if name == "specversion" || name == "id" || name == "meta" || name == "options" || name == "schema" || name == "timeout" {
				continue
			}
			_, err = spec.ParseJob([]byte(withMembers(`"options":{"`+name+`":`+value+`}`)), now)
			refused(t, "options."+name+" "+value, err, status, code, "options."+field)
		}
	}
	for _, value := range []string{`"2.0"`, `"1"`, `""`} {
		_, err := spec.ParseJob([]byte(withMembers(`"specversion":`+value)), now)
		refused(t, value, err, 422, "unsupported", "specversion")
	}
	for body, field := range map[string]string{
		`"visibility_timeout":0`: "visibility_timeout", `"visibility_timeout":86401`: "visibility_timeout", `"visibility_timeout":1.5`: "visibility_timeout", `"visibility_timeout":null`: "visibility_timeout",
		`"visibility_timeout":"PT0S"`: "visibility_timeout", `"visibility_timeout":"P1M"`: "visibility_timeout", `"visibility_timeout":"PT25H"`: "visibility_timeout", `"visibility_timeout":[]`: "visibility_timeout",
		`"visibility_timeout":"30"`: "visibility_timeout", `"options":{"visibility_timeout":"PT0.0001S"}`: "options.visibility_timeout", `"options":{"visibility_timeout":true}`: "options.visibility_timeout",
		`"options":{"visibility_timeout_ms":0}`: "options.visibility_timeout_ms", `"options":{"visibility_timeout_ms":"PT1S"}`: "options.visibility_timeout_ms", `"options":{"visibility_timeout_ms":86400001}`: "options.visibility_timeout_ms",
		`"options":{"metadata":[]}`: "options.metadata", `"options":{"metadata":null}`: "options.metadata",
	} {
		_, err := spec.ParseJob([]byte(withMembers(body)), now)
		refused(t, body, err, 400, "invalid_request", field)
	}
}
