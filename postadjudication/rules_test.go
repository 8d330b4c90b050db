package postadjudication

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func TestARuleThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutRuleLoop)
	ctx, yes := context.Background(), true
	for field, spoil := range map[string]func(*acting, *RuleChange){
		"tenant":                    func(who *acting, q *RuleChange) { who.tenant = "" },
		"actor":                     func(who *acting, q *RuleChange) { who.actor = " " },
		"reason":                    func(who *acting, q *RuleChange) { q.Reason = "" },
		"name":                      func(who *acting, q *RuleChange) { q.Rule.Name = "all of them" },
		"filter":                    func(who *acting, q *RuleChange) { q.Rule.Filter = deadletter.Filter{Status: background.LetterOpen} },
		"all":                       func(who *acting, q *RuleChange) { q.Rule.All = true },
		"letter":                    func(who *acting, q *RuleChange) { q.Rule.Filter.Status = background.LetterForked },
		"currency":                  func(who *acting, q *RuleChange) { q.Rule.Filter.Currency = "euro" },
		"outcome_class":             func(who *acting, q *RuleChange) { q.Rule.Filter.Class = escrow.Unknown },
		"held":                      func(who *acting, q *RuleChange) { q.Rule.Filter.Held = &yes },
		"manual_review_required":    func(who *acting, q *RuleChange) { q.Rule.Filter.Review = &yes },
		"delay":                     func(who *acting, q *RuleChange) { q.Rule.Delay = "" },
		"max_replays":               func(who *acting, q *RuleChange) { q.Rule.MaxReplays = 0 },
		"policy.max_retry_attempts": func(who *acting, q *RuleChange) { q.Rule.Policy = &retrypolicy.Policy{MaxRetryAttempts: -1} },
		"mark":                      func(who *acting, q *RuleChange) { q.Rule.MaxReplays, q.Rule.Mark = 0, &RuleMark{Reason: "why"} },
		"mark.reason":               func(who *acting, q *RuleChange) { q.Rule.MaxReplays, q.Rule.Mark = 0, &RuleMark{Review: &yes} },
		"policy": func(who *acting, q *RuleChange) {
			q.Rule.MaxReplays, q.Rule.Mark, q.Rule.Policy = 0, &RuleMark{Review: &yes, Reason: "why"}, &retrypolicy.Policy{}
		},
		"filter.error_text": func(who *acting, q *RuleChange) { q.Rule.Filter.ErrorText = "token=sk_live_abcdefghijklmnopqrstuvwx" },
	} {
		q := replayRule(1)
		who := acting{"acme", "user:ada"}
		spoil(&who, &q)
		var wrong *refusal.FieldError
		if _, err := r.As(who.tenant, who.actor).Rules.Set(ctx, q); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		if field == "tenant" || field == "actor" || field == "reason" {
			continue
		}
		if _, err := r.As("acme", "").Rules.Try(ctx, q.Rule); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("a trial, %s: %v", field, err)
		}
	}
	if n := r.count(`SELECT (SELECT count(*) FROM recourse.rules) + (SELECT count(*) FROM recourse.receipts)`); n != 0 {
		t.Errorf("%d rows were left", n)
	}
	var wrong *refusal.FieldError
	if _, err := r.As("", "").Rules.List(ctx); !errors.As(err, &wrong) {
		t.Errorf("rules of no tenant: %v", err)
	}
	if _, err := r.As("", "").Rules.Try(ctx, replayRule(1).Rule); !errors.As(err, &wrong) {
		t.Errorf("a trial of no tenant: %v", err)
	}
	if _, err := r.As("other", "user:ada").Rules.Delete(ctx, RuleRemoval{Name: "refused-later", Reason: "why"}); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("another tenant's rule: %v", err)
	}
}

func TestARuleIsReadFromJSON(t *testing.T) {
	t.Parallel()
	got, err := ParseRule([]byte(`{"name":"retry-connection-errors","filter":{"error_type":"ConnectionError"},"delay":"PT1H","max_replays":3,"enabled":true}`))
	want := Rule{Name: "retry-connection-errors", Enabled: true, Filter: deadletter.Filter{ErrorType: "ConnectionError"}, Delay: "PT1H", MaxReplays: 3}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, field := range map[string]string{
		`{"name":"a","filter":{"error_typ":"x"},"delay":"1h","max_replays":1}`:                                            "error_typ",
		`{"name":"a","filter":{"error_type":""},"delay":"1h","max_replays":1}`:                                            "error_type",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replay":1}`:                                            "max_replay",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":"1"}`:                                         "max_replays",
		`{"name":"a","delay":"1h","max_replays":1}`:                                                                       "filter",
		`{"name":"a","filter":null,"delay":"1h","max_replays":1}`:                                                         "filter",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":null}`:                                        "max_replays",
		`{"name":"a","filter":{"error_type":"x"},"mark":null,"delay":"1h","max_replays":1}`:                               "mark",
		`{"name":"a","filter":{"error_type":"x"},"delay":"soon","max_replays":1}`:                                         "delay",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1}{"name":""}`:                                "rule",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1,"max_replays":9}`:                           "max_replays",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1,"Max_Replays":9}`:                           "Max_Replays",
		`{"name":"a","filter":{"error_type":"x","error_type":"y"},"delay":"1h","max_replays":1}`:                          "filter.error_type",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","mark":{"reason":"x","Review":true}}`:                       "Review",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1,"mark":{"Reason":"x"}}`:                     "mark.Reason",
		`{"name":"\ud800","filter":{"error_type":"x"},"delay":"1h","max_replays":1}`:                                      "name",
		`{"name":"a","filter":{"error_type":"x"},"delay":"1h","max_replays":1,"4111111111111111":1,"4111111111111111":2}`: "[card]",
		`[]`: "rule",
		``:   "rule",
	} {
		var wrong *refusal.FieldError
		if _, err := ParseRule([]byte(text)); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestADelayIsReadInBothForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"PT1H": time.Hour, "P1D": 24 * time.Hour, "PT0S": 0, "0s": 0, "90m": 90 * time.Minute, "30d": 720 * time.Hour, "1h30m": 90 * time.Minute,
	} {
		if got, err := ruleDelay(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "P", "PT", "-1h", "1", "P999Y", "2000000h", "an hour"} {
		if got, err := ruleDelay(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}
