package postadjudication

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// retentionRig is a process that prunes letters and executes nothing, with a clock that the test
// sets.
type retentionRig struct {
	*rig
	mu    sync.Mutex
	ahead time.Duration
}

func (k *retentionRig) at(ahead time.Duration) *retentionRig {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ahead = ahead
	return k
}

// The rig's own workers stop: their first round of pruning may come at any time, and
// with another clock.
func (r *rig) retentionRig(change ...func(*Config)) *retentionRig {
	r.stopWork()
	k := &retentionRig{}
	clock := func(c *Config) {
		c.Simulated = true
		c.Now = func() time.Time {
			k.mu.Lock()
			defer k.mu.Unlock()
			return time.Now().Add(k.ahead)
		}
	}
	k.rig = joinRig(r.t, r.url, r.redis, r.escrow, append([]func(*Config){clock}, change...)...)
	return k
}

func (k *retentionRig) prune(want PruneReport) {
	k.t.Helper()
	want.Ran = true
	if got, err := k.Prune(context.Background()); err != nil || got != want {
		k.t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func withArchive(t testing.TB) func(*Config) {
	a, err := ArchiveDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Archive = a }
}

// archivedLetters returns the archived letters of a family, by run.
func (k *retentionRig) archivedLetters(tenant, family string) map[background.RunID]ArchivedLetter {
	k.t.Helper()
	out := map[background.RunID]ArchivedLetter{}
	for l, err := range k.As(tenant, "").DeadLetters.Archived(context.Background(), family) {
		if err != nil {
			k.t.Fatal(err)
		}
		if _, twice := out[l.Run]; twice {
			k.t.Errorf("letter %s is read twice", l.Run)
		}
		out[l.Run] = l
	}
	return out
}

func TestALetterIsAnnouncedArchivedAndPurged(t *testing.T) {
	t.Parallel()
	r := newRig(t, oneQueue).startWorkers()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	r.untilArchivedTasks(r.inspector(), 1, onlyQueue)
	k := r.retentionRig(withArchive(t))
	k.at(172 * validate.Day).prune(PruneReport{})
	k.at(174 * validate.Day).prune(PruneReport{Announced: 1})
	k.prune(PruneReport{})
	if l, err := k.Health().Levels(context.Background()); err != nil || l.Expiring[casework.Family] != 1 || l.Held != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	k.at(180 * validate.Day).prune(PruneReport{}) // announced late, it still has its seven days
	k.at(182 * validate.Day).prune(PruneReport{Pruned: 1})
	k.prune(PruneReport{})

	ending, expired := r.payloadsOf(letter, receipts.RetentionEnding), r.payloadsOf(letter, receipts.RetentionExpired)
	if len(ending) != 1 || len(expired) != 1 || !ending[0].ExpiresAt.Equal(expired[0].ExpiresAt) || expired[0].ReasonCode != "max_age" {
		t.Fatalf("%+v, %+v", ending, expired)
	}
	kept, ok := k.archivedLetters("acme", casework.Family)[letter.Run]
	if !ok || kept.Transaction != "txr_1" || kept.Error == nil || kept.Error.Message != "account closed" || kept.Settlement.Reserved != 1000 || !json.Valid(kept.Request) {
		t.Errorf("archived %+v", kept)
	}
	if !strings.HasPrefix(expired[0].Archive, "acme/settlement/") {
		t.Errorf("the receipt names %q", expired[0].Archive)
	}
	if st, err := r.Status(context.Background(), "acme", letter.Run); err != nil || st.Letter != background.LetterPurged {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(context.Background(), letter.Run, forkRequest); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("fork of a purged letter: %v", err)
	}
	if _, err := r.As("acme", "").DeadLetters.Annotations(context.Background(), letter.Run); !errors.Is(err, refusal.ErrNotFound) {
		t.Errorf("annotation of a purged letter: %v", err)
	}
	if c := r.caseOf(release(1)); c.Progression != settlement.DisputeReady || c.Reserved != 1000 {
		t.Errorf("case %+v", c)
	}
	r.untilTrue("the archived task is removed", func() bool { // the next scan removes one that a second notification left meanwhile
		info, err := r.inspector().GetTaskInfo(onlyQueue, letter.Run.String()+".1")
		return errors.Is(err, asynq.ErrTaskNotFound) || err == nil && info.State != asynq.TaskStateArchived
	})
	if n := r.count(`SELECT count(*) FROM recourse.annotations`); n != 0 {
		t.Errorf("%d rows of annotations", n)
	}
	r.mustAudit()
	if types := r.eventTypes(letter.Run); !slices.Contains(types, receipts.LetterExpiring) || types[len(types)-1] != receipts.RunPurged {
		t.Errorf("events %v", types)
	}
}

// eventTypes returns the types of a run's events, in order.
func (r *rig) eventTypes(run background.RunID) (types []receipts.EventType) {
	r.t.Helper()
	var after Position
	for {
		page, next, err := r.Events(context.Background(), "acme", after, 1000)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range page {
			if e.Run == run {
				types = append(types, e.Type)
			}
		}
		if len(page) == 0 {
			return types
		}
		after = next
	}
}

func TestHeldLettersAndUnknownMoneyOutliveTheirRetention(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.escrow.lookup = func(escrow.Call) escrow.Answer { return noAnswer() }
	r.startWorkers()
	held, unknown := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() }), r.deadLetter(2, func(escrow.Call) escrow.Answer { return noAnswer() })
	ctx := context.Background()
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	k := r.retentionRig(withArchive(t)).at(4000 * validate.Day)
	k.prune(PruneReport{})
	if l, err := k.Health().Levels(ctx); err != nil || l.Expiring[casework.Family] != 0 || l.Held != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := r.As("acme", "").DeadLetters.Fork(ctx, held.Run, deadletter.Fork{}); err == nil {
		t.Error("forked by nobody")
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Release(ctx, held.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(ctx, "acme", unknown.Run, casework.Finding{Reason: "asked the bank", Class: escrow.NotExecuted, Reference: "stmt-7"}); err != nil {
		t.Fatal(err)
	}
	k.prune(PruneReport{Announced: 2})
	k.at(4006 * validate.Day).prune(PruneReport{})
	k.at(4008 * validate.Day).prune(PruneReport{Pruned: 2})
	if n := len(k.archivedLetters("acme", casework.Family)); n != 2 {
		t.Errorf("%d archived", n)
	}
	r.mustAudit()
}

func TestWithoutAnArchiveMoneyStaysAndTasksGo(t *testing.T) {
	t.Parallel()
	chores := PlainFamily{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
		return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
	}}
	with := func(c *Config) { c.Families = []PlainFamily{chores} }
	r := newRig(t, with).startWorkers()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	task, err := r.SubmitTask(context.Background(), Task{Tenant: "acme", Family: "chores", Payload: json.RawMessage(`{"dust":true}`)})
	if err != nil {
		t.Fatal(err)
	}
	r.untilNoneLive()
	k := r.retentionRig(with).at(181 * validate.Day)
	k.prune(PruneReport{Announced: 2, Unarchived: 1})
	k.at(189 * validate.Day).prune(PruneReport{Pruned: 1, Unarchived: 1})
	if st := k.Health().Stats().Retention; st.Rounds != 2 || st.Pruned != 1 || st.Announced != 2 || st.Unarchived != 1 {
		t.Errorf("%+v", st)
	}
	if d, err := r.As("acme", "").DeadLetters.Annotations(context.Background(), letter.Run); err != nil || d.ExpiresAt == nil {
		t.Errorf("%+v, %v", d, err)
	}
	if n := r.count(`SELECT count(*) FROM recourse.runs WHERE payload IS NULL AND id = $1`, task.Run.String()); n != 1 {
		t.Error("the payload of a purged task was not removed")
	}
	if payloads := r.payloadsOf(task, receipts.RetentionExpired); len(payloads) != 1 || payloads[0].Archive != "" {
		t.Errorf("%+v", payloads)
	}
	r.mustAudit()
}

func TestTheNewestOfEachTenantAreKeptByCount(t *testing.T) {
	t.Parallel()
	with := func(c *Config) {
		c.Families = []PlainFamily{{Name: "chores", Handle: func(context.Context, background.Attempt) background.Result {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "chore.refused"}}
		}}}
	}
	few := func(c *Config) { c.Retention = []RetentionRule{{Family: "chores", MaxCount: 3}} }
	r := newRig(t, with).startWorkers()
	ctx := context.Background()
	var mine []Submitted
	for i := range 6 {
		s, err := r.SubmitTask(ctx, Task{Tenant: "acme", Family: "chores"})
		if err != nil {
			t.Fatal(err)
		}
		r.untilNoneLive()
		if mine = append(mine, s); i < 2 {
			if _, err := r.SubmitTask(ctx, Task{Tenant: "other", Family: "chores"}); err != nil {
				t.Fatal(err)
			}
			r.untilNoneLive()
		}
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(ctx, mine[1].Run, holdReason); err != nil {
		t.Fatal(err)
	}
	r.retentionRig(with, few).prune(PruneReport{Pruned: 2})
	for i, s := range mine {
		st, err := r.Status(ctx, "acme", s.Run)
		if want := map[bool]background.LetterStatus{true: background.LetterPurged, false: background.LetterOpen}[i == 0 || i == 2]; err != nil || st.Letter != want {
			t.Errorf("letter %d is %s, %v", i, st.Letter, err)
		}
	}
	if n := r.count(`SELECT count(*) FROM recourse.runs WHERE tenant = 'other' AND letter = 'open'`); n != 2 {
		t.Errorf("%d letters of another tenant are left", n)
	}
	if payloads := r.payloadsOf(mine[0], receipts.RetentionExpired); len(payloads) != 1 || payloads[0].ReasonCode != "max_count" {
		t.Errorf("%+v", payloads)
	}
	r.mustAudit()
}

// crashingArchive is an archive whose process dies after a file was written, before it
// learns of that.
type crashingArchive struct {
	Archive
	left int
}

var errCrashed = errors.New("the process died")

func (a *crashingArchive) Put(ctx context.Context, name string, content []byte) error {
	if err := a.Archive.Put(ctx, name, content); err != nil || a.left == 0 {
		return err
	}
	a.left--
	return errCrashed
}

func TestADeathBetweenArchiveAndJournalLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	const n = 5
	var last Submitted
	for i := range n {
		last = r.deadLetter(i, func(escrow.Call) escrow.Answer { return refused() })
	}
	away := &crashingArchive{left: 1000}
	k := r.retentionRig(withArchive(t), func(c *Config) { away.Archive, c.Archive = c.Archive, away }).at(200 * validate.Day)
	k.prune(PruneReport{Announced: n})
	k.at(208 * validate.Day)
	for range 2 {
		if _, err := k.Prune(context.Background()); !errors.Is(err, errCrashed) {
			t.Fatalf("%v", err)
		}
		if open := r.count(`SELECT count(*) FROM recourse.runs WHERE letter = 'open'`); open != n {
			t.Fatalf("%d letters are open", open)
		}
	}
	away.left = 0
	yes := true
	if _, err := r.As("acme", "user:ada").DeadLetters.Mark(context.Background(), last.Run, deadletter.Mark{Reason: "after it was archived once", ReprocessEligible: &yes}); err != nil {
		t.Fatal(err)
	}
	k.prune(PruneReport{Pruned: n})
	kept := k.archivedLetters("acme", casework.Family)
	if len(kept) != n || kept[last.Run].MarkReason != "after it was archived once" {
		t.Errorf("%d archived, the last as %+v", len(kept), kept[last.Run])
	}
	r.mustAudit()
}

// Only one process prunes at a time; if the lock was lost, two rounds at once do no harm.
func TestPrunersThatMeetTakeEachLetterOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	const n = 60
	all := make([]Adjudication, n)
	for i := range all {
		all[i] = release(i)
	}
	r.escrow.script = func(context.Context, escrow.Call) escrow.Answer { return refused() }
	if _, errs := r.SubmitBatch(context.Background(), all); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	r.untilNoneLive()
	archive := withArchive(t)
	a, b := r.retentionRig(archive).at(181*validate.Day), r.retentionRig(archive).at(181*validate.Day)
	taken := make(chan int, 8)
	meet := func(ahead time.Duration) {
		var both sync.WaitGroup
		defer both.Wait()
		for _, k := range []*retentionRig{a.at(ahead), b.at(ahead), a, b} {
			both.Go(func() {
				round := &pruneRound{keeper: k.keeper}
				for _, rule := range k.keeper.rules.all() {
					if err := round.applyRule(context.Background(), rule); err != nil {
						t.Error(err)
					}
				}
				if len(round.errs) > 0 {
					t.Errorf("%v", round.errs)
				}
				taken <- round.report.Pruned
			})
		}
	}
	meet(181 * validate.Day)
	meet(189 * validate.Day)
	close(taken)
	sum := 0
	for t := range taken {
		sum += t
	}
	rest, err := a.Prune(context.Background())
	if err != nil || sum+rest.Pruned != n {
		t.Errorf("%d and %+v, %v", sum, rest, err)
	}
	if found := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'retention-expired'`); found != n {
		t.Errorf("%d receipts", found)
	}
	if found := r.count(`SELECT count(*) FROM recourse.receipts WHERE subtype = 'retention-ending'`); found != n {
		t.Errorf("%d announcements", found)
	}
	if kept := a.archivedLetters("acme", casework.Family); len(kept) != n {
		t.Errorf("%d archived", len(kept))
	}
	held := make(chan struct{})
	alone := make(chan bool, 1)
	_, err = a.journal.Letters.Exclusive(context.Background(), func() error {
		go func() { defer close(held); got, _ := b.Prune(context.Background()); alone <- got.Ran }()
		<-held
		return nil
	})
	if err != nil || <-alone {
		t.Errorf("two pruned at a time, %v", err)
	}
	if got, err := b.Prune(context.Background()); err != nil || !got.Ran {
		t.Errorf("the lock was kept: %+v, %v", got, err)
	}
	r.mustAudit()
}

// Run prunes at intervals by itself.
func TestRunPrunesByItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.startWorkers()
	r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	r.stopWork()
	k := r.retentionRig(withArchive(t), func(c *Config) { c.PruneEvery = 20 * time.Millisecond; c.Sweep = 50 * time.Millisecond }).at(181 * validate.Day)
	k.startWorkers()
	r.until("the end is announced", `SELECT EXISTS (SELECT FROM recourse.annotations WHERE ends_at IS NOT NULL)`)
	k.at(189 * validate.Day)
	r.until("the letter is purged", `SELECT EXISTS (SELECT FROM recourse.runs WHERE letter = 'purged')`)
	k.stopWork()
	r.mustAudit()
}
