package bulk_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// throttledPlan is a slow plan: one letter at a time, four per second.
func throttledPlan() bulk.Request {
	q := rig.AllLetters(bulk.Fork)
	q.Throttle = 4
	return q
}

func checkBulkState(r *rig.Rig, b bulk.Plan, err error, state bulk.State) bulk.Plan {
	r.T.Helper()
	if err != nil || b.State != state {
		r.T.Fatalf("the plan is %s, not %s: %v", b.State, state, err)
	}
	return b
}

// untilNoPlanLocked waits until no process holds the lock of a plan.
func untilNoPlanLocked(r *rig.Rig) {
	r.T.Helper()
	r.Wait("nobody works on a plan", func() bool {
		return r.QueryBool(`SELECT NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 1919119988
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	})
}

func TestAPausedPlanStandsStillAndGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	const n = 12
	r.DeadLetters(0, n, rig.Refuses)
	plan := r.MustPlan(throttledPlan())
	var wrong *bulk.StateError
	if _, err := r.As("acme", "user:bob").Bulk.Pause(ctx, plan.ID, "wait"); !errors.As(err, &wrong) || wrong.State != bulk.Planned {
		t.Errorf("a pause before the start: %v", err)
	}
	if _, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash); err != nil {
		t.Fatal(err)
	}
	r.WaitPlanned("something is done", plan.ID, func(b bulk.Plan) bool { return b.Progress.Done > 0 })
	b, err := r.As("acme", "user:cem").Bulk.Pause(ctx, plan.ID, "the bank asks")
	checkBulkState(r, b, err, bulk.Paused)
	if b.ChangedBy != "user:cem" || b.ChangedReason != "the bank asks" || b.ChangedAt == nil || b.EndedAt != nil {
		t.Errorf("%+v", b)
	}
	untilNoPlanLocked(r)
	b, err = r.As("acme", "user:cem").Bulk.Pause(ctx, plan.ID, "again")
	paused := checkBulkState(r, b, err, bulk.Paused).Progress
	if paused.Done == 0 || paused.Pending == 0 || b.ChangedReason != "the bank asks" {
		t.Errorf("%+v, %+v", paused, b)
	}
	b, err = r.As("acme", "user:dee").Bulk.Run(ctx, plan.ID, plan.Hash)
	if checkBulkState(r, b, err, bulk.Paused); b.StartedBy != "user:bob" || b.Progress.Done != paused.Done {
		t.Errorf("started by %s; %d were done while it was paused", b.StartedBy, b.Progress.Done-paused.Done)
	}
	b, err = r.As("acme", "user:cem").Bulk.Resume(ctx, plan.ID, "the bank is content")
	checkBulkState(r, b, err, bulk.Running)
	if b = r.WaitPlan(plan.ID); b.Progress.Done != n {
		t.Errorf("%+v", b.Progress)
	}
	if _, err := r.As("acme", "user:cem").Bulk.Cancel(ctx, plan.ID, "no"); !errors.As(err, &wrong) || wrong.State != bulk.Done {
		t.Errorf("a cancel after the end: %v", err)
	}
	checkPlanReceipts(r, plan, "user:ada none to planned", "user:bob planned to running", "user:cem running to paused", "user:cem paused to running", "system:bulk running to done")
	r.WaitNoneLive()
	r.MustAudit()
}

func TestACancelledPlanEndsWithWhatWasDone(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	const n = 12
	r.DeadLetters(0, n, rig.Refuses)
	plan, never := r.MustPlan(throttledPlan()), r.MustPlan(throttledPlan())
	if plan.Hash != never.Hash || plan.ID == never.ID {
		t.Error("two plans of the same letters are not the same")
	}
	if _, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash); err != nil {
		t.Fatal(err)
	}
	r.WaitPlanned("something is done", plan.ID, func(b bulk.Plan) bool { return b.Progress.Done > 0 })
	b, err := r.As("acme", "user:cem").Bulk.Cancel(ctx, plan.ID, "not these")
	if checkBulkState(r, b, err, bulk.Cancelled); b.EndedAt == nil {
		t.Errorf("%+v", b)
	}
	r.WaitPlansSettled()
	untilNoPlanLocked(r)
	b, err = r.As("acme", "user:cem").Bulk.Cancel(ctx, plan.ID, "again")
	p := checkBulkState(r, b, err, bulk.Cancelled).Progress
	forks := r.CountForks()
	if p.Done != int64(forks) || p.Pending != int64(n-forks) || p.Pending == 0 {
		t.Errorf("%+v of %d forks", p, forks)
	}
	var wrong *bulk.StateError
	if _, err := r.As("acme", "user:bob").Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &wrong) || wrong.State != bulk.Cancelled {
		t.Errorf("to start it again: %v", err)
	}
	b, err = r.As("acme", "user:cem").Bulk.Cancel(ctx, never.ID, "nor these")
	if checkBulkState(r, b, err, bulk.Cancelled); b.StartedAt != nil || b.Progress.Pending != n {
		t.Errorf("%+v", b)
	}
	for _, err := range []error{
		func() error { _, err := r.As("acme", "").Bulk.Pause(ctx, plan.ID, "x"); return err }(),
		func() error { _, err := r.As("acme", "user:cem").Bulk.Resume(ctx, plan.ID, ""); return err }(),
		func() error { _, err := r.As("acme", "user:cem").Bulk.Cancel(ctx, plan.ID, ""); return err }(),
	} {
		var field *refusal.FieldError
		if !errors.As(err, &field) || field.Field != "actor" && field.Field != "reason" {
			t.Errorf("without actor or reason: %v", err)
		}
	}
	page, err := r.As("acme", "").Bulk.List(ctx, bulk.Filter{}, "")
	if err != nil || len(page.Bulks) != 2 || page.Bulks[0].ID != never.ID || page.More {
		t.Errorf("%+v, %v", page, err)
	}
	if page, err = r.As("acme", "").Bulk.List(ctx, bulk.Filter{}, never.ID.String()); err != nil || len(page.Bulks) != 1 || page.Bulks[0].ID != plan.ID {
		t.Errorf("%+v, %v", page, err)
	}
	for state, want := range map[bulk.State]int{bulk.Planned: 0, bulk.Running: 0, bulk.Paused: 0, bulk.Done: 0, bulk.Cancelled: 2} {
		if page, err = r.As("acme", "").Bulk.List(ctx, bulk.Filter{State: state}, ""); err != nil || len(page.Bulks) != want {
			t.Errorf("%s: %+v, %v", state, page, err)
		}
	}
	if page, err = r.As("acme", "").Bulk.List(ctx, bulk.Filter{State: bulk.Cancelled}, never.ID.String()); err != nil || len(page.Bulks) != 1 || page.Bulks[0].ID != plan.ID {
		t.Errorf("the page after the newest cancelled plan: %+v, %v", page, err)
	}
	var unknown *refusal.FieldError
	if _, err = r.As("acme", "").Bulk.List(ctx, bulk.Filter{State: "waiting"}, ""); !errors.As(err, &unknown) || unknown.Field != "state" || unknown.Problem != "must be one of planned, running, paused, done, cancelled, refused" {
		t.Errorf("an unknown state: %v", err)
	}
	if page, err = r.As("other", "").Bulk.List(ctx, bulk.Filter{}, ""); err != nil || len(page.Bulks) != 0 {
		t.Errorf("another tenant sees %+v, %v", page, err)
	}
	r.WaitNoneLive()
	r.MustAudit()
}

// A person who may run a plan of somebody else sees that it waits for them, and can refuse it: nothing is done, and a receipt has
// who refused it.
func TestAPlanIsRefusedByWhoMightHaveRunIt(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letters := r.DeadLetters(0, 3, rig.Refuses)
	other := r.MustPlan(rig.AllLetters(bulk.Hold)) // takes one person
	plan := r.MustPlan(rig.AllLetters(bulk.Fork))
	if released := r.MustPlan(rig.AllLetters(bulk.Release)); released.Ready > 0 || released.State != bulk.Planned { // it waits for nobody: it would do nothing
		t.Errorf("%+v", released)
	}
	_, operator, err := r.As("acme", "root").Keys.Create(ctx, postadjudication.NewKey{Principal: "user:eve", Roles: []access.Role{access.Operator}, Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	byOperator := postadjudication.WithCaller(ctx, postadjudication.Caller{Key: operator.Prefix})
	waiting := func(ctx context.Context, actor string) (ids []uuid.UUID) {
		page, err := r.As("acme", actor).Bulk.List(ctx, bulk.Filter{WaitingForMe: true}, "")
		if err != nil || page.More {
			t.Errorf("%s: %+v, %v", actor, page, err)
		}
		for _, b := range page.Bulks {
			ids = append(ids, b.ID)
		}
		return ids
	}
	for actor, want := range map[string][]uuid.UUID{"user:ada": {other.ID}, "user:bob": {plan.ID, other.ID}, "rule:nightly": {other.ID}} {
		if got := waiting(ctx, actor); !slices.Equal(got, want) {
			t.Errorf("%v wait for %s, want %v", got, actor, want)
		}
	}
	if got := waiting(byOperator, "user:eve"); len(got) > 0 {
		t.Errorf("%v wait for somebody who may run none", got)
	}
	for _, refused := range []struct {
		ctx                  context.Context
		actor, reason, field string
	}{{ctx, "user:ada", "mine", "actor"}, {ctx, "rule:nightly", "no", "actor"}, {byOperator, "user:eve", "no", "actor"}, {ctx, "user:bob", "", "reason"}, {ctx, "", "no", "actor"}} {
		var field *refusal.FieldError
		if _, err := r.As("acme", refused.actor).Bulk.Refuse(refused.ctx, plan.ID, refused.reason); !errors.As(err, &field) || field.Field != refused.field {
			t.Errorf("refused by %q: %v", refused.actor, err)
		}
	}
	for _, again := range []string{"user:bob", "user:cem"} {
		b, err := r.As("acme", again).Bulk.Refuse(ctx, plan.ID, "the account is still closed")
		if checkBulkState(r, b, err, bulk.Refused); b.ChangedBy != "user:bob" || b.ChangedReason != "the account is still closed" || b.EndedAt == nil || b.StartedAt != nil || b.Review != nil {
			t.Errorf("%+v", b)
		}
	}
	var wrong *bulk.StateError
	for what, do := range map[string]func(bulk.Plans) error{
		"run":    func(p bulk.Plans) error { _, err := p.Run(ctx, plan.ID, plan.Hash); return err },
		"cancel": func(p bulk.Plans) error { _, err := p.Cancel(ctx, plan.ID, "mine"); return err },
		"resume": func(p bulk.Plans) error { _, err := p.Resume(ctx, plan.ID, "mine"); return err },
	} {
		if err := do(r.As("acme", "user:cem").Bulk); !errors.As(err, &wrong) || wrong.State != bulk.Refused {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.RunPlan(other)
	if _, err := r.As("acme", "user:cem").Bulk.Refuse(ctx, other.ID, "too late"); !errors.As(err, &wrong) || wrong.State != bulk.Done {
		t.Errorf("a plan that was run: %v", err)
	}
	if got := waiting(ctx, "user:bob"); len(got) > 0 || r.LetterStatus(letters[0]) != background.LetterOpen {
		t.Errorf("%v wait; the letter is %s", got, r.LetterStatus(letters[0]))
	}
	for actor, f := range map[string]bulk.Filter{"user:bob": {WaitingForMe: true, State: bulk.Done}, "": {WaitingForMe: true}} {
		var field *refusal.FieldError
		if _, err := r.As("acme", actor).Bulk.List(ctx, f, ""); !errors.As(err, &field) {
			t.Errorf("%+v of %q: %v", f, actor, err)
		}
	}
	checkPlanReceipts(r, plan, "user:ada none to planned", "user:bob planned to refused")
	r.MustAudit()
}

// A changed plan can't be run by the hash of the original.
func TestAPlanThatWasTamperedWithIsStale(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letters := r.DeadLetters(0, 3, rig.Refuses)
	for _, change := range []string{
		`UPDATE recourse.bulk_items SET amount = 1 WHERE position = 1 AND bulk_id = $1`,
		`UPDATE recourse.bulk_items SET seq = seq + 1 WHERE position = 2 AND bulk_id = $1`,
		`UPDATE recourse.bulk_items SET link = sha256(link) WHERE position = 2 AND bulk_id = $1`,
		`UPDATE recourse.bulk_items SET run_id = gen_random_uuid() WHERE position = 3 AND bulk_id = $1`,
		`DELETE FROM recourse.bulk_items WHERE position = 3 AND bulk_id = $1`,
		`UPDATE recourse.bulks SET action = 'purge' WHERE id = $1`,
		`UPDATE recourse.bulks SET asked = '{"filter":{}}' WHERE id = $1`,
		`UPDATE recourse.bulks SET actor = 'user:eve' WHERE id = $1`,
		`UPDATE recourse.bulks SET reason = 'because' WHERE id = $1`,
	} {
		plan := r.MustPlan(rig.AllLetters(bulk.Fork))
		if _, err := r.DB.Exec(change, plan.ID); err != nil {
			t.Fatal(err)
		}
		var wrong *refusal.FieldError
		if _, err := r.As("acme", "user:bob").Bulk.Run(context.Background(), plan.ID, plan.Hash); !errors.As(err, &wrong) || wrong.Field != "hash" {
			t.Errorf("%s: %v", change, err)
		}
	}
	plan := r.MustPlan(rig.AllLetters(bulk.Fork))
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letters[0].Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	other := r.MustPlan(rig.AllLetters(bulk.Fork))
	var wrong *refusal.FieldError
	if _, err := r.As("acme", "user:bob").Bulk.Run(context.Background(), plan.ID, other.Hash); plan.Hash == other.Hash || !errors.As(err, &wrong) {
		t.Errorf("by the hash of another plan: %v", err)
	}
	if n := r.CountLetters(background.LetterForked); n != 1 {
		t.Errorf("%d letters were forked", n)
	}
}

func TestTheForkOfAPlanHasAlwaysTheSameID(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetters(0, 2, rig.Refuses)
	b, err := r.As("", "").Bulk.Stored().Find(context.Background(), "acme", r.RunPlan(r.MustPlan(rig.AllLetters(bulk.Fork))).ID)
	if err != nil {
		t.Fatal(err)
	}
	one, other := bulk.ForkID(b, letter[0].Run), bulk.ForkID(b, letter[1].Run)
	for _, id := range []uuid.UUID{uuid.UUID(one), uuid.UUID(other)} {
		if id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Errorf("%s is a UUID of version %d", id, id.Version())
		}
		sec, nsec := id.Time().UnixTime()
		if at := time.Unix(sec, nsec); at.UnixMilli() != b.StartedAt.UnixMilli() {
			t.Errorf("%s is of %s, not %s", id, at, b.StartedAt)
		}
	}
	if one == other || r.CountRuns(rig.Runs{ID: one, Forks: true})+r.CountRuns(rig.Runs{ID: other, Forks: true}) != 2 {
		t.Error("the forks are not those of plan and letter")
	}
}

// A process died after it held many letters and before it recorded any outcome, and the plan was
// cancelled meanwhile. All outcomes are found, in more than one chunk.
func TestTheOutcomesOfACancelledPlanAreAllFound(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	const n = 260 // more than a chunk
	r.DeadLetters(0, n, rig.Refuses)
	ctx := context.Background()
	plan := r.MustPlan(bulk.Request{Action: bulk.Hold, Reason: "the auditors asked for it", Filter: deadletter.Filter{ErrorType: "http.refused"}})
	if b := r.RunPlan(plan); b.Progress.Done != n {
		t.Fatalf("%+v", b.Progress)
	}
	for _, change := range []string{`UPDATE recourse.bulk_items SET outcome = '' WHERE bulk_id = $1`, `UPDATE recourse.bulks SET state = 'cancelled', settled = false WHERE id = $1`} {
		if _, err := r.DB.Exec(change, plan.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.As("acme", "").Bulk.Work(ctx, plan.ID); err != nil {
		t.Fatal(err)
	}
	if done := len(r.BulkItems(plan.ID, "done")); done != n {
		t.Errorf("%d items are done", done)
	}
}

// A plan that a newer version made may move money in a way that this version does not know.
func TestAPlanOfAnUnknownActionIsNotStartedAndDoesNothing(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	ctx := context.Background()
	letter := r.DeadLetter(1, rig.Refuses)
	plan, err := r.As("acme", "user:ada").Bulk.PlanOfAction(ctx, r.MustPlan(rig.AllLetters(bulk.Hold)), "transfer")
	if err != nil || plan.People != 2 {
		t.Fatalf("it takes %d people: %v", plan.People, err)
	}
	for _, actor := range []string{"user:ada", "user:bob"} {
		var wrong *refusal.FieldError
		if _, err := r.As("acme", actor).Bulk.Run(ctx, plan.ID, plan.Hash); !errors.As(err, &wrong) || wrong.Field != "action" {
			t.Errorf("started by %s: %v", actor, err)
		}
	}
	if _, err := r.DB.Exec(`UPDATE recourse.bulks SET state = 'running', started_by = 'user:bob', started_at = now() WHERE id = $1`, plan.ID); err != nil {
		t.Fatal(err)
	}
	if b := r.WaitPlan(plan.ID); b.Progress.Failed != 1 || b.Progress.Done != 0 {
		t.Errorf("%+v", b.Progress)
	}
	if status := r.LetterStatus(letter); status != background.LetterOpen {
		t.Errorf("the letter is %s", status)
	}
}
