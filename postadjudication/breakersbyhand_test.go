package postadjudication_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// After a release by hand, a breaker over all tenants closes by probes.
func TestABreakerOverAllTenantsIsMovedByHand(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := rig.New(t, withBreakers)
	b, err := r.As(postadjudication.AllTenants, "ops:kim").Breakers.Open(ctx, escrow.DefaultTarget, "maintenance")
	if err != nil || b.State != circuit.Open || !b.ByHand || b.Tenant != postadjudication.AllTenants || b.Since == nil {
		t.Fatalf("%+v, %v", b, err)
	}
	r.StartWorkers()
	submitAll(r, 0, 30)
	foreign := rig.Release(99)
	foreign.Tenant = "other"
	s := r.MustSubmit(foreign)
	r.Wait("all notifications were handled", func() bool { return r.Health().Stats().PausedDeliveries >= 31 })
	flushed := redis.NewClient(&redis.Options{Addr: r.Redis.(asynq.RedisClientOpt).Addr, Password: r.Redis.(asynq.RedisClientOpt).Password})
	defer func() { _ = flushed.Close() }()
	if err := flushed.FlushAll(ctx).Err(); err != nil { // paused runs have no notification to lose
		t.Fatal(err)
	}
	if calls := r.Escrow.TotalCalls(); calls != 0 {
		t.Errorf("%d calls", calls)
	}
	if st, err := r.Status(ctx, "other", s.Run); err != nil || len(st.PausedBy) != 1 || !st.PausedBy[0].ByHand {
		t.Errorf("%+v, %v", st.PausedBy, err)
	}
	for _, tenant := range []string{"acme", "other"} { // each sees it in its own trail
		if subtypes, _ := breakerReceipts(r, tenant); len(subtypes) != 1 || subtypes[0] != receipts.BreakerOpened {
			t.Errorf("%s: %v", tenant, subtypes)
		}
	}
	if _, err := r.As("acme", "ops:kim").Breakers.Release(ctx, escrow.DefaultTarget, "x"); !errors.Is(err, postadjudication.ErrBreakerNotOpen) {
		t.Errorf("a tenant releases the breaker over all tenants: %v", err)
	}
	if b, err = r.As(postadjudication.AllTenants, "ops:kim").Breakers.Release(ctx, escrow.DefaultTarget, "done"); err != nil || b.State != circuit.HalfOpen {
		t.Fatalf("%+v, %v", b, err)
	}
	r.WaitNoneLive()
	untilClosed(r)
	r.WaitBreakerRecorded(2)
	for _, tenant := range []string{"acme", "other"} {
		if subtypes, _ := breakerReceipts(r, tenant); len(subtypes) != 2 || subtypes[1] != receipts.BreakerReleased {
			t.Errorf("%s: %v", tenant, subtypes)
		}
	}
	if _, causes := breakerReceipts(r, postadjudication.AllTenants); len(causes) < 3 || causes[0] != circuit.CauseManual || causes[len(causes)-1] != circuit.CauseRecovered {
		t.Errorf("%v", causes)
	}
	var field *refusal.FieldError
	star := rig.Release(100)
	star.Tenant = postadjudication.AllTenants
	if _, err := r.Submit(ctx, star); !errors.As(err, &field) || field.Field != "tenant" {
		t.Errorf("submitted for all tenants: %v", err)
	}
	r.MustAudit()
}

// A breaker opened by hand for a tenant outlives every process and is not probed; only a person
// releases it.
func TestABreakerOpenedByHandStaysOpenUntilAPersonReleasesIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := rig.New(t, withBreakers)
	r.StartWorkers()
	b, err := r.As("acme", "ops:kim").Breakers.Open(ctx, escrow.DefaultTarget, "they asked us to")
	if err != nil || b.State != circuit.Open || !b.ByHand || b.Actor != "ops:kim" || b.Cause != circuit.CauseManual {
		t.Fatalf("%+v, %v", b, err)
	}
	if again, err := r.As("acme", "ops:lee").Breakers.Open(ctx, escrow.DefaultTarget, "again"); err != nil || again.Actor != b.Actor || !again.At.Equal(b.At) {
		t.Errorf("%+v, %v", again, err)
	}
	submitAll(r, 0, 20)
	foreign := rig.Release(99)
	foreign.Tenant = "other"
	r.MustSubmit(foreign)
	r.WaitCases(1, rig.Cases{Tenant: "other", Progression: settlement.Settled})
	r.StopWorkers()
	next := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, withBreakers).StartWorkers()
	next.Wait("the next process knows", func() bool { return next.Health().Stats().BreakersNotClosed == 1 })
	submitAll(next, 20, 30)
	next.Wait("it pauses new runs", func() bool { return next.Health().Stats().PausedDeliveries >= 10 })
	if calls := r.Escrow.TotalCalls(); calls != 1 {
		t.Errorf("%d calls", calls)
	}
	if _, err := next.As("acme", "ops:kim").Breakers.Release(ctx, "somebody else", "x"); !errors.Is(err, postadjudication.ErrBreakerNotOpen) {
		t.Errorf("%v", err)
	}
	if b, err = next.As("acme", "ops:lee").Breakers.Release(ctx, escrow.DefaultTarget, "they are back"); err != nil || b.State != circuit.Closed || b.ByHand {
		t.Fatalf("%+v, %v", b, err)
	}
	next.WaitNoneLive()
	if calls := r.Escrow.TotalCalls(); calls != 31 {
		t.Errorf("%d calls", calls)
	}
	if _, causes := breakerReceipts(next, "acme"); len(causes) != 2 || causes[1] != circuit.CauseManual {
		t.Errorf("%v", causes)
	}
	next.MustAudit()
}

func TestBreakerChangesNameWhoAndWhy(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	for _, args := range [][4]string{{"", "escrow", "a", "b"}, {"acme", "", "a", "b"}, {"acme", "escrow", "", "b"}, {"acme", "escrow", "a", ""}, {"acme", "escrow", "a\n", "b"}, {"acme", "escrow", "a", "b\u009b2J"}} {
		var field *refusal.FieldError
		if _, err := r.As(args[0], args[2]).Breakers.Open(context.Background(), args[1], args[3]); !errors.As(err, &field) {
			t.Errorf("%v: %v", args, err)
		}
		if _, err := r.As(args[0], args[2]).Breakers.Release(context.Background(), args[1], args[3]); !errors.As(err, &field) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if bs, err := r.As("acme", "").Breakers.List(context.Background()); err != nil || len(bs) != 0 {
		t.Errorf("%v, %v", bs, err)
	}
}

// A tenant opens so many circuit breakers by hand, and no more: every process reads all that are open.
func TestATenantOpensABoundedNumberOfBreakers(t *testing.T) {
	t.Parallel()
	r := rig.New(t, withBreakers)
	acme := r.As("acme", "ops:kim").Breakers
	for i := range 100 {
		if _, err := acme.Open(t.Context(), fmt.Sprintf("%sq%d", escrow.RemotePrefix, i), "maintenance"); err != nil {
			t.Fatal(err)
		}
	}
	var wrong *refusal.FieldError
	if _, err := acme.Open(t.Context(), escrow.RemotePrefix+"more", "maintenance"); !errors.As(err, &wrong) || wrong.Field != "target" {
		t.Errorf("one more: %v", err)
	}
	if _, err := acme.Open(t.Context(), escrow.RemotePrefix+"q7", "still"); err != nil {
		t.Errorf("one of them again: %v", err)
	}
	if _, err := r.As("other", "ops:kim").Breakers.Open(t.Context(), escrow.RemotePrefix+"more", "maintenance"); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if _, err := acme.Release(t.Context(), escrow.RemotePrefix+"q7", "done"); err != nil {
		t.Fatal(err)
	}
}
