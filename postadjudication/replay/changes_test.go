package replay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/replay"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

func TestTryingARuleTellsWhatItWouldDoAndDoesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	r.StartWorkers()
	ctx := context.Background()
	letters := r.DeadLetters(0, 4, rig.Refuses)
	r.DeadLetters(4, 6, rig.GivesNoAnswer)
	if _, err := r.As("acme", "user:bob").DeadLetters.Hold(ctx, letters[0].Run, "a court asks"); err != nil {
		t.Fatal(err)
	}
	before := r.CountRows("receipts")
	rule := rig.ReplayRule(1).Rule
	rule.Enabled = false
	trial, err := r.As("acme", "").Rules.Try(ctx, rule)
	if err != nil || trial.Matched != 4 || trial.Scanned != 4 || trial.More || trial.Ready != 3 || trial.Money["EUR"] != settlement.SumOf(3000) || !maps.Equal(trial.Refused, map[refusal.Gate]int64{refusal.GateHeld: 1}) ||
		len(trial.Letters) != 3 || trial.Letters[2].DeadAt.Before(trial.Letters[0].DeadAt) ||
		slices.ContainsFunc(trial.Letters, func(l deadletter.Letter) bool { return l.Run == letters[0].Run || l.Held }) {
		t.Errorf("%+v, %v", trial, err)
	}
	rule.Filter, rule.All = deadletter.Filter{}, true
	trial, err = r.As("acme", "").Rules.Try(ctx, rule)
	if err != nil || trial.Matched != 6 || trial.Ready != 3 || trial.Refused[refusal.GateMayBeExecuted] != 2 {
		t.Errorf("%+v, %v", trial, err)
	}
	if trial, err = r.As("other", "").Rules.Try(ctx, rule); err != nil || trial.Matched != 0 || trial.Ready != 0 {
		t.Errorf("%+v, %v", trial, err)
	}
	if after := r.CountRows("receipts"); after != before || r.CountRows("rules") != 0 {
		t.Errorf("%d receipts, %d before", after, before)
	}
	r.MustSetRule(rig.ReplayRule(1))
	r.Escrow.Answer(rig.Refuses)
	r.MustApplyRules(replay.Report{Rules: 1, Replayed: 3})
	r.WaitNoneLive()
	if trial, err = r.As("acme", "").Rules.Try(ctx, rig.ReplayRule(1).Rule); err != nil || trial.Ready != 0 || trial.Refused[refusal.GateReplaysSpent] != 3 {
		t.Errorf("%+v, %v", trial, err)
	}
}

func TestARuleIsVersionedAndEachChangeIsAReceipt(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx := context.Background()
	version := func(n int64) *int64 { return &n }
	q := rig.ReplayRule(2)
	q.IfVersion = version(0)
	if set := r.MustSetRule(q); set.Version != 1 || set.Tenant != "acme" || set.MaxReplays != 2 || set.Actor != "user:ada" || set.At.IsZero() {
		t.Errorf("%+v", set)
	}
	var other *replay.VersionError
	if _, err := r.As("acme", "user:ada").Rules.Set(ctx, q); !errors.As(err, &other) || other.Current.Version != 1 || other.Current.MaxReplays != 2 {
		t.Errorf("%v", err)
	}
	if same := r.MustSetRule(rig.ReplayRule(2)); same.Version != 1 {
		t.Errorf("%+v", same)
	}
	q = rig.ReplayRule(3)
	q.IfVersion, q.Reason = version(1), "see token=sk_live_abcdefghijklmnopqrstuvwx"
	if set := r.MustSetRule(q); set.Version != 2 || strings.Contains(set.Reason, "sk_live") {
		t.Errorf("%+v", set)
	}
	removal := replay.Removal{Name: "refused-later", Reason: "enough", IfVersion: version(1)}
	if _, err := r.As("acme", "user:bob").Rules.Delete(ctx, removal); !errors.As(err, &other) || other.Current.Version != 2 {
		t.Errorf("%v", err)
	}
	removal.IfVersion = nil
	if was, err := r.As("acme", "user:bob").Rules.Delete(ctx, removal); err != nil || was.Version != 2 || was.MaxReplays != 3 {
		t.Errorf("%+v, %v", was, err)
	}
	if _, err := r.As("acme", "user:bob").Rules.Delete(ctx, removal); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	q.IfVersion = version(0)
	if set := r.MustSetRule(q); set.Version != 4 {
		t.Errorf("%+v", set)
	}
	for _, tenant := range []string{"acme", "other"} {
		if rules, err := r.As(tenant, "").Rules.List(ctx); err != nil || (len(rules) == 1) != (tenant == "acme") {
			t.Errorf("%s: %+v, %v", tenant, rules, err)
		}
	}
	trail := r.Count(`SELECT count(*) FROM recourse.receipts WHERE subtype = $1 AND body::json->'payload'->>'rule' LIKE '{"name":"refused-later"%'`, string(receipts.RuleChanged))
	if trail != 4 || !r.QueryBool(`SELECT array_agg(body::json->'payload'->>'changes' ORDER BY seq) =
		ARRAY['refused-later: made', 'refused-later: max_replays 2 to 3', 'refused-later: deleted', 'refused-later: made'] FROM recourse.receipts WHERE subtype = 'rule-changed'`) {
		t.Errorf("%d receipts", trail)
	}
	if a := r.MustAudit(); a.Chains != 1 || a.Receipts != 4 {
		t.Errorf("%d chains, %d receipts", a.Chains, a.Receipts)
	}
}

// Of many who set a rule with the same IfVersion, one succeeds; and a tenant has no more than the
// maximum of rules, however many create the last ones at once.
func TestOfManyWhoSetARuleAtOnceOneDoes(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx := context.Background()
	var all sync.WaitGroup
	won := make(chan int, 20)
	for i := range 20 {
		all.Go(func() {
			q := rig.ReplayRule(i + 1)
			q.IfVersion = new(int64)
			var other *replay.VersionError
			switch set, err := r.As("acme", "user:ada").Rules.Set(ctx, q); {
			case err == nil:
				won <- set.MaxReplays
			case !errors.As(err, &other) || other.Current.Version != 1:
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%d were set", len(won))
	}
	if rules, err := r.As("acme", "").Rules.List(ctx); err != nil || len(rules) != 1 || rules[0].MaxReplays != <-won {
		t.Errorf("%+v, %v", rules, err)
	}
	for i := range journal.MaxRules - 2 {
		q := rig.ReplayRule(1)
		q.Rule.Name = fmt.Sprintf("rule-%d", i)
		r.MustSetRule(q)
	}
	made := make(chan error, 4)
	for i := range cap(made) {
		all.Go(func() {
			q := rig.ReplayRule(1)
			q.Rule.Name = fmt.Sprintf("last-%d", i)
			_, err := r.As("acme", "user:ada").Rules.Set(ctx, q)
			made <- err
		})
	}
	all.Wait()
	close(made)
	ok := 0
	for err := range made {
		if err == nil {
			ok++
		} else if !errors.Is(err, replay.ErrTooMany) {
			t.Error(err)
		}
	}
	if n := r.CountRows("rules"); ok != 1 || n != journal.MaxRules {
		t.Errorf("%d were made, there are %d", ok, n)
	}
	r.MustSetRule(rig.ReplayRule(7)) // an existing rule can be changed
}

// Each change of a rule is a version of its history, whatever happens to other rules meanwhile; a
// rule whose name has the same prefix is another.
func TestARuleHasAHistory(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.WithoutRuleLoop)
	ctx := context.Background()
	first := r.MustSetRule(rig.ReplayRule(1))
	alike := rig.ReplayRule(4)
	alike.Rule.Name += ".2"
	r.MustSetRule(alike)
	second := rig.ReplayRule(3)
	second.Reason = "more patience"
	r.MustSetRule(second)
	if _, err := r.As("acme", "user:bob").Rules.Delete(ctx, replay.Removal{Name: first.Name, Reason: "no longer"}); err != nil {
		t.Fatal(err)
	}
	r.MustSetRule(rig.ReplayRule(2))
	history, err := r.As("acme", "").Rules.History(ctx, first.Name, 0, 100)
	if err != nil || len(history) != 4 {
		t.Fatalf("%+v, %v", history, err)
	}
	for i, want := range []replay.Version{
		{StoredRule: replay.StoredRule{Actor: first.Actor, Reason: first.Reason}, Changes: "made"},
		{StoredRule: replay.StoredRule{Actor: first.Actor, Reason: "more patience"}, Changes: "max_replays 1 to 3"},
		{StoredRule: replay.StoredRule{Actor: "user:bob", Reason: "no longer"}, Changes: "deleted", Deleted: true},
		{StoredRule: replay.StoredRule{Actor: first.Actor, Reason: first.Reason}, Changes: "made"},
	} {
		v := history[i]
		if v.Version != int64(i+1) || v.Name != first.Name || v.Tenant != "acme" || v.Actor != want.Actor || v.Reason != want.Reason || v.Deleted != want.Deleted || v.Changes != want.Changes ||
			v.Receipt == "" || v.At.IsZero() {
			t.Errorf("version %d: %+v", i+1, v)
		}
	}
	if history[1].MaxReplays != 3 || history[3].MaxReplays != 2 || history[0].Filter != first.Filter {
		t.Errorf("%+v", history)
	}
	now, err := r.As("acme", "").Rules.List(ctx)
	if err != nil || now[0].Name != first.Name || now[0].Version != history[3].Version {
		t.Errorf("the last of the history is not what there is: %+v, %v", now, err)
	}
	if some, err := r.As("acme", "").Rules.History(ctx, first.Name, 1, 2); err != nil || len(some) != 2 || some[0].Version != 2 || some[1].Version != 3 {
		t.Errorf("%+v, %v", some, err)
	}
	for tenant, name := range map[string]string{"other": first.Name, "acme": "none"} {
		if some, err := r.As(tenant, "").Rules.History(ctx, name, 0, 10); err != nil || len(some) != 0 {
			t.Errorf("%s of %s: %+v, %v", name, tenant, some, err)
		}
	}
	var bad *refusal.FieldError
	if _, err := r.As("", "").Rules.History(ctx, first.Name, 0, 10); !errors.As(err, &bad) || bad.Field != "tenant" {
		t.Errorf("no tenant: %v", err)
	}
	if _, err := r.As("acme", "").Rules.History(ctx, first.Name, 0, 0); !errors.As(err, &bad) || bad.Field != "limit" {
		t.Errorf("no limit: %v", err)
	}
	r.MustAudit()
}
