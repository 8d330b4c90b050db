package postadjudication_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

func policyChange(attempts int) postadjudication.PolicyChange {
	return postadjudication.PolicyChange{Family: postadjudication.Family, Policy: retrypolicy.Policy{MaxRetryAttempts: attempts, BaseDelay: time.Millisecond}, Reason: "they asked for patience"}
}

// A caller who may not read a policy's receipts leaves no refusal among them: the receipts are its versions.
func TestARefusalIsNoVersionOfAPolicy(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	for n := range 3 {
		if _, err := r.As("acme", "user:ada").Policies.Set(ctx, policyChange(4+n)); err != nil {
			t.Fatal(err)
		}
		cases, err := r.AuditReader().OperationLogs(ctx, "acme")
		if err != nil || len(cases) == 0 {
			t.Fatalf("%v, %v", cases, err)
		}
		if err := r.RecordRefusal(ctx, postadjudication.AccessRefusal{Tenant: "acme", Actor: "user:bob", Action: "receipts", Code: "role_missing", Case: cases[0]}); err != nil {
			t.Fatal(err)
		}
	}
	if history, err := r.As("acme", "").Policies.History(ctx, postadjudication.Family, 0, 10); err != nil || len(history) != 3 || history[2].Version != 3 || history[2].Policy.MaxRetryAttempts != 6 {
		t.Errorf("%+v, %v", history, err)
	}
	if n := len(operationLog(r, "acme", "refusals")); n != 3 {
		t.Errorf("%d refusals are returned", n)
	}
	r.MustAudit()
}

// New runs have the policy that was set, also in another process; existing runs and their forks
// keep theirs, and other tenants have theirs.
func TestAPolicyThatIsSetIsThatOfNewRuns(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow)
	ctx := context.Background()
	before := r.MustSubmit(rig.Release(1))
	set, err := r.As("acme", "user:ada").Policies.Set(ctx, policyChange(5))
	if err != nil || set.Version != 1 || set.Policy.MaxRetryAttempts != 5 || set.Actor != "user:ada" || set.At.IsZero() {
		t.Fatalf("%+v, %v", set, err)
	}
	after := r.MustSubmit(rig.Release(2))
	foreign := rig.Release(3)
	foreign.Tenant = "other"
	elsewhere := r.MustSubmit(foreign)
	r.Escrow.Answer(rig.RateLimits)
	r.StartWorkers()
	r.WaitNoneLive()
	for run, want := range map[background.RunID]int{before.Run: 3, after.Run: 5} {
		if st, err := r.Status(ctx, "acme", run); err != nil || st.Attempts != want || st.Policy.MaxRetryAttempts != want {
			t.Errorf("%d attempts of %d, want %d, %v", st.Attempts, st.Policy.MaxRetryAttempts, want, err)
		}
	}
	if st, err := r.Status(ctx, "other", elsewhere.Run); err != nil || st.Attempts != 3 {
		t.Errorf("another tenant's run: %+v, %v", st, err)
	}
	fork, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, before.Run, rig.ForkRequest)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := r.Status(ctx, "acme", fork.Run); err != nil || st.Policy.MaxRetryAttempts != 3 {
		t.Errorf("the fork of an older run: %+v, %v", st.Policy, err)
	}
	n := 10
	r.Wait("another process learns of it", func() bool {
		n++
		s, err := other.Submit(ctx, rig.Release(n))
		if err != nil {
			t.Fatal(err)
		}
		st, err := r.Status(ctx, "acme", s.Run)
		if err != nil {
			t.Fatal(err)
		}
		return st.Policy.MaxRetryAttempts == 5
	})
	r.WaitNoneLive()
	r.MustAudit()
}

func TestAPolicyIsVersionedAndItsHistoryIsInReceipts(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	version := func(n int64) *int64 { return &n }
	first := policyChange(5)
	first.IfVersion = version(0)
	if _, err := r.As("acme", "user:ada").Policies.Set(ctx, first); err != nil {
		t.Fatal(err)
	}
	var other *postadjudication.PolicyVersionError
	if _, err := r.As("acme", "user:ada").Policies.Set(ctx, first); !errors.As(err, &other) || other.Current.Version != 1 || other.Current.Policy.MaxRetryAttempts != 5 {
		t.Fatalf("a change of version 0: %v", err)
	}
	if same, err := r.As("acme", "user:ada").Policies.Set(ctx, policyChange(5)); err != nil || same.Version != 1 {
		t.Errorf("what holds already: %+v, %v", same, err)
	}
	second := policyChange(7)
	second.Policy.NonRetryable, second.IfVersion = []string{"http.refused"}, version(1)
	second.Reason = "see token=sk_live_abcdefghijklmnopqrstuvwx"
	if set, err := r.As("acme", "user:ada").Policies.Set(ctx, second); err != nil || set.Version != 2 {
		t.Fatalf("%+v, %v", set, err)
	}
	history, err := r.As("acme", "").Policies.History(ctx, postadjudication.Family, 0, 10)
	if err != nil || len(history) != 2 {
		t.Fatalf("%+v, %v", history, err)
	}
	if h := history[0]; h.Version != 1 || h.Changes != "max_retry_attempts 3 to 5; base_delay 25ms to 1ms" || h.Policy.MaxRetryAttempts != 5 || h.Actor != "user:ada" {
		t.Errorf("%+v", h)
	}
	if h := history[1]; h.Version != 2 || h.Changes != "max_retry_attempts 5 to 7; non_retryable [] to [http.refused]" || strings.Contains(h.Reason, "sk_live") {
		t.Errorf("%+v", h)
	}
	if rest, err := r.As("acme", "").Policies.History(ctx, postadjudication.Family, 1, 10); err != nil || len(rest) != 1 || rest[0].Version != 2 {
		t.Errorf("%+v, %v", rest, err)
	}
	list, err := r.As("acme", "").Policies.List(ctx)
	if err != nil || len(list) != 1 || list[0].Version != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, tenant := range []string{"", "other"} {
		list, err := r.As(tenant, "").Policies.List(ctx)
		if err != nil || tenant == "" && len(list) != 0 || tenant != "" && (len(list) != 1 || list[0].Version != 0 || list[0].Policy.MaxRetryAttempts != 3) {
			t.Errorf("tenant %q: %+v, %v", tenant, list, err)
		}
		if h, err := r.As(tenant, "").Policies.History(ctx, postadjudication.Family, 0, 10); err != nil || len(h) != 0 {
			t.Errorf("tenant %q: %+v, %v", tenant, h, err)
		}
	}
	if a := r.MustAudit(); a.Chains != 1 || a.Receipts != 2 {
		t.Errorf("%d chains, %d receipts", a.Chains, a.Receipts)
	}
}

// Of many who set a policy with the same IfVersion, one succeeds.
func TestOfManyWhoSetAPolicyOnOneVersionOneDoes(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	var all sync.WaitGroup
	won := make(chan int, 20)
	for i := range 20 {
		all.Go(func() {
			q := policyChange(10 + i)
			q.IfVersion = new(int64)
			var other *postadjudication.PolicyVersionError
			switch set, err := r.As("acme", "user:ada").Policies.Set(context.Background(), q); {
			case err == nil:
				won <- set.Policy.MaxRetryAttempts
			case !errors.As(err, &other) || other.Current.Version != 1:
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Fatalf("%d were set", len(won))
	}
	if list, err := r.As("acme", "").Policies.List(context.Background()); err != nil || list[0].Policy.MaxRetryAttempts != <-won || list[0].Version != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if n := r.CountReceipts(rig.Receipts{Subtype: receipts.PolicyChanged}); n != 1 {
		t.Errorf("%d receipts", n)
	}
	r.MustAudit()
}

func TestAPolicyThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t, func(c *postadjudication.Config) {
		c.Families = []postadjudication.PlainFamily{{Name: "letters", Handle: rig.SucceedTask}}
	})
	ctx := context.Background()
	for field, spoil := range map[string]func(*acting, *postadjudication.PolicyChange){
		"tenant":                    func(who *acting, q *postadjudication.PolicyChange) { who.tenant = "" },
		"family":                    func(who *acting, q *postadjudication.PolicyChange) { q.Family = "" },
		"actor":                     func(who *acting, q *postadjudication.PolicyChange) { who.actor = " " },
		"reason":                    func(who *acting, q *postadjudication.PolicyChange) { q.Reason = "" },
		"policy.max_delay":          func(who *acting, q *postadjudication.PolicyChange) { q.Policy.MaxDelay = 31 * day },
		"policy.max_retry_attempts": func(who *acting, q *postadjudication.PolicyChange) { q.Policy.MaxRetryAttempts = -1 },
		"policy.jitter":             func(who *acting, q *postadjudication.PolicyChange) { q.Policy.Jitter = 2 },
		"policy.non_retryable[0]":   func(who *acting, q *postadjudication.PolicyChange) { q.Policy.NonRetryable = []string{"*"} },
		"policy.on_exhaustion":      func(who *acting, q *postadjudication.PolicyChange) { q.Policy.OnExhaustion = retrypolicy.Discard },
	} {
		q := policyChange(5)
		who := acting{"acme", "user:ada"}
		spoil(&who, &q)
		var wrong *refusal.FieldError
		if _, err := r.As(who.tenant, who.actor).Policies.Set(ctx, q); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	unknown := policyChange(5)
	unknown.Family = "setlement"
	if _, err := r.As("acme", "user:ada").Policies.Set(ctx, unknown); !errors.Is(err, background.ErrUnknownFamily) {
		t.Errorf("a family that is none: %v", err)
	}
	if n := r.CountRows("policies", "receipts"); n != 0 {
		t.Errorf("%d rows were left", n)
	}
	known := policyChange(4)
	known.Family = "letters"
	if set, err := r.As("acme", "user:ada").Policies.Set(ctx, known); err != nil || set.Version != 1 {
		t.Errorf("%+v, %v", set, err)
	}
	s, err := r.SubmitTask(ctx, postadjudication.Task{Tenant: "acme", Family: "letters"})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := r.Status(ctx, "acme", s.Run); err != nil || st.Policy.MaxRetryAttempts != 4 {
		t.Errorf("%+v, %v", st, err)
	}
	// A process that does not have the family can set its policy once the tenant has had tasks.
	bare := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow)
	known.Policy.MaxRetryAttempts = 6
	if set, err := bare.As("acme", "user:ada").Policies.Set(ctx, known); err != nil || set.Version != 2 {
		t.Errorf("%+v, %v", set, err)
	}
	if _, err := bare.As("other", "user:ada").Policies.Set(ctx, known); !errors.Is(err, background.ErrUnknownFamily) {
		t.Errorf("a tenant that has none: %v", err)
	}
}

// A reset is a version with a receipt: new runs of every process have the configured policy,
// existing ones keep theirs, and the next change starts from the configured one.
func TestAPolicyThatIsResetIsAsConfigured(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	other := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow)
	ctx := context.Background()
	reset := postadjudication.PolicyReset{Family: postadjudication.Family, Reason: "patience is over"}
	if p, err := r.As("acme", "user:ada").Policies.Reset(ctx, reset); err != nil || p.Version != 0 || !p.AsConfigured {
		t.Errorf("where nothing was set: %+v, %v", p, err)
	}
	if _, err := r.As("acme", "user:ada").Policies.Set(ctx, policyChange(7)); err != nil {
		t.Fatal(err)
	}
	kept := r.MustSubmit(rig.Release(1))
	wrong, one := int64(9), int64(1)
	var old *postadjudication.PolicyVersionError
	reset.IfVersion = &wrong
	if _, err := r.As("acme", "user:ada").Policies.Reset(ctx, reset); !errors.As(err, &old) || old.Current.Version != 1 || old.Expected != 9 {
		t.Errorf("of another version: %v", err)
	}
	reset.IfVersion = &one
	p, err := r.As("acme", "user:ada").Policies.Reset(ctx, reset)
	if err != nil || p.Version != 2 || !p.AsConfigured || p.Policy.MaxRetryAttempts != 3 || p.Actor != "user:ada" || p.At.IsZero() {
		t.Fatalf("%+v, %v", p, err)
	}
	reset.IfVersion = nil
	if p, err := r.As("acme", "user:ada").Policies.Reset(ctx, reset); err != nil || p.Version != 2 {
		t.Errorf("again: %+v, %v", p, err)
	}
	attempts := func(of postadjudication.Submitted) int {
		st, err := r.Status(ctx, "acme", of.Run)
		if err != nil {
			t.Fatal(err)
		}
		return st.Policy.MaxRetryAttempts
	}
	if a, b := attempts(kept), attempts(r.MustSubmit(rig.Release(2))); a != 7 || b != 3 {
		t.Errorf("the run that was there has %d, the new one %d", a, b)
	}
	n := 10
	r.Wait("another process learns of it", func() bool {
		n++
		s, err := other.Submit(ctx, rig.Release(n))
		if err != nil {
			t.Fatal(err)
		}
		return attempts(s) == 3
	})
	all, err := r.As("acme", "").Policies.List(ctx)
	if err != nil || len(all) != 1 || !all[0].AsConfigured || all[0].Version != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if p, err := r.As("acme", "user:ada").Policies.Set(ctx, policyChange(4)); err != nil || p.Version != 3 || p.AsConfigured {
		t.Errorf("%+v, %v", p, err)
	}
	history, err := r.As("acme", "").Policies.History(ctx, postadjudication.Family, 0, 10)
	if err != nil || len(history) != 3 || !history[1].AsConfigured || history[1].Version != 2 || !strings.Contains(history[1].Changes, "max_retry_attempts 7 to 3") ||
		history[1].Reason != "patience is over" || !strings.Contains(history[2].Changes, "max_retry_attempts 3 to 4") {
		t.Errorf("%+v, %v", history, err)
	}
	var bad *refusal.FieldError
	for field, c := range map[string]struct{ tenant, actor, reason string }{"tenant": {"", "a", "b"}, "actor": {"acme", "", "b"}, "reason": {"acme", "a", ""}} {
		if _, err := r.As(c.tenant, c.actor).Policies.Reset(ctx, postadjudication.PolicyReset{Family: postadjudication.Family, Reason: c.reason}); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("without %s: %v", field, err)
		}
	}
	if _, err := r.As("acme", "a").Policies.Reset(ctx, postadjudication.PolicyReset{Family: "setlement", Reason: "b"}); !errors.Is(err, background.ErrUnknownFamily) {
		t.Errorf("of no family: %v", err)
	}
	r.MustAudit()
}

// The audit finds a reset that is stored differently from its receipt.
func TestAResetPolicyThatWasTamperedWithIsFound(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").Policies.Set(ctx, policyChange(7)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.As("acme", "user:ada").Policies.Reset(ctx, postadjudication.PolicyReset{Family: postadjudication.Family, Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	r.MustAudit()
	if _, err := r.DB.Exec(`UPDATE recourse.policies SET policy = $1`, policyChange(9).Policy.Encode()); err != nil {
		t.Fatal(err)
	}
	if a, err := r.Audit(ctx); err != nil || !strings.Contains(a.Verdict(audit.InvariantFold), "the policy of family settlement") {
		t.Errorf("%v, %v", a.Broken, err)
	}
}
