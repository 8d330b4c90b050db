package replay_test

import (
	"context"
	"errors"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func TestARuleThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx, yes := context.Background(), true
	for field, spoil := range map[string]func(*acting, *replay.Change){
		"tenant": func(who *acting, q *replay.Change) { who.tenant = "" },
		"actor":  func(who *acting, q *replay.Change) { who.actor = " " },
		"reason": func(who *acting, q *replay.Change) { q.Reason = "" },
		"name":   func(who *acting, q *replay.Change) { q.Rule.Name = "all of them" },
		"filter": func(who *acting, q *replay.Change) {
			q.Rule.Filter = deadletter.Filter{Status: background.LetterOpen}
		},
		"all":                    func(who *acting, q *replay.Change) { q.Rule.All = true },
		"letter":                 func(who *acting, q *replay.Change) { q.Rule.Filter.Status = background.LetterForked },
		"currency":               func(who *acting, q *replay.Change) { q.Rule.Filter.Currency = "euro" },
		"outcome_class":          func(who *acting, q *replay.Change) { q.Rule.Filter.Class = escrow.Unknown },
		"held":                   func(who *acting, q *replay.Change) { q.Rule.Filter.Held = &yes },
		"manual_review_required": func(who *acting, q *replay.Change) { q.Rule.Filter.Review = &yes },
		"delay":                  func(who *acting, q *replay.Change) { q.Rule.Delay = "" },
		"max_replays":            func(who *acting, q *replay.Change) { q.Rule.MaxReplays = 0 },
		"policy.max_retry_attempts": func(who *acting, q *replay.Change) {
			q.Rule.Policy = &retrypolicy.Policy{MaxRetryAttempts: -1}
		},
		"mark": func(who *acting, q *replay.Change) {
			q.Rule.MaxReplays, q.Rule.Mark = 0, &replay.Mark{Reason: "why"}
		},
		"mark.reason": func(who *acting, q *replay.Change) {
			q.Rule.MaxReplays, q.Rule.Mark = 0, &replay.Mark{Review: &yes}
		},
		"policy": func(who *acting, q *replay.Change) {
			q.Rule.MaxReplays, q.Rule.Mark, q.Rule.Policy = 0, &replay.Mark{Review: &yes, Reason: "why"}, &retrypolicy.Policy{}
		},
		"filter.error_text": func(who *acting, q *replay.Change) {
			q.Rule.Filter.ErrorText = "token=sk_live_abcdefghijklmnopqrstuvwx"
		},
	} {
		q := rig.ReplayRule(1)
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
	if n := r.CountRows("rules", "receipts"); n != 0 {
		t.Errorf("%d rows were left", n)
	}
	var wrong *refusal.FieldError
	if _, err := r.As("", "").Rules.List(ctx); !errors.As(err, &wrong) {
		t.Errorf("rules of no tenant: %v", err)
	}
	if _, err := r.As("", "").Rules.Try(ctx, rig.ReplayRule(1).Rule); !errors.As(err, &wrong) {
		t.Errorf("a trial of no tenant: %v", err)
	}
	if _, err := r.As("other", "user:ada").Rules.Delete(ctx, replay.Removal{Name: "refused-later", Reason: "why"}); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("another tenant's rule: %v", err)
	}
}
