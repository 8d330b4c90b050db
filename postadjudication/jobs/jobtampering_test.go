package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// What decides who fetches a job, and what its worker returned, is compared with its receipts.
func TestTheAuditFindsChangedColumnsOfJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for column, harm := range map[string]string{
		"priority":             `UPDATE recourse.runs SET priority = 9 WHERE id = '%s'`,
		"expiry":               `UPDATE recourse.runs SET expires_at = now() + interval '1 day' WHERE id = '%s'`,
		"queue":                `UPDATE recourse.runs SET queue = 'other' WHERE id = '%s'`,
		"remote":               `UPDATE recourse.runs SET remote = false WHERE id = '%s'`,
		"digest of the output": `UPDATE recourse.runs SET output = 'forged' WHERE id = '%s'`,
		"attempts handed back": `UPDATE recourse.runs SET attempt_count = 1, handed_back = 1 WHERE id = '%s'`,
	} {
		job := f.mustEnqueue(func(j *jobs.Job) { j.Queue = "kept" })
		testkit.Tamper(t, f.DB, `CREATE TABLE kept AS SELECT * FROM recourse.runs WHERE id = '`+job.Run.String()+`'`, fmt.Sprintf(harm, job.Run))
		found, err := f.Audit(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(found.Breaks); len(found.Breaks) == 0 || !strings.Contains(text, job.Run.String()) || !strings.Contains(text, column) {
			t.Errorf("%s: the audit found %s", column, text)
		}
		testkit.Tamper(t, f.DB, `UPDATE recourse.runs r SET priority = k.priority, expires_at = k.expires_at, queue = k.queue, remote = k.remote, output = k.output, attempt_count = k.attempt_count, handed_back = k.handed_back
			FROM kept k WHERE k.id = r.id`, `DROP TABLE kept`)
	}
	f.MustAudit()
}

// Who holds an attempt, and since when, is compared with its receipt: else another worker could answer for the holder,
// or be told to pay later than the order may be paid.
func TestTheAuditFindsALeaseThatWasChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	_, named := f.submitRemote(1)
	f.mustFetchOrder("w1")
	f.submitRemote(2)
	f.mustFetchOrder("") // without a name
	for _, harm := range []string{`worker = 'mallory'`, `worker = ''`, `principal = 'user:other'`, `at = at + interval '1 hour'`} {
		testkit.Tamper(t, f.DB, `CREATE TABLE kept AS TABLE recourse.leases`, `UPDATE recourse.leases SET `+harm+` WHERE run_id = '`+named.ID+`'`)
		if found, err := f.Audit(ctx); err != nil || len(found.Breaks) != 1 || !strings.Contains(found.Breaks[0].What, "is leased to") {
			t.Errorf("%s: the audit found %+v, %v", harm, found.Breaks, err)
		}
		testkit.Tamper(t, f.DB, `DELETE FROM recourse.leases`, `INSERT INTO recourse.leases TABLE kept`, `DROP TABLE kept`)
	}
	f.MustAudit()
}

// What a job is unique by, and until when, is compared with its receipts, also after a retry that changes it: else
// a second one could be enqueued beside it.
func TestTheAuditFindsAUniqueJobThatIsNoLongerUnique(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	dead := f.mustDie(liveUnique(jobs.Reject), func(j *jobs.Job) { j.Unique.Until = time.Now().Add(time.Hour) })
	f.MustAudit()
	changed := again
	changed.Payload, changed.Fingerprint = []byte(`{"args":["b"]}`), &[32]byte{9}
	if _, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, changed); err != nil {
		t.Fatal(err)
	}
	f.MustAudit()
	for _, harm := range []string{`DELETE FROM recourse.unique_jobs`, `UPDATE recourse.unique_jobs SET fingerprint = sha256('x')`, `UPDATE recourse.unique_jobs SET until = now()`, `UPDATE recourse.unique_jobs SET until = NULL`} {
		testkit.Tamper(t, f.DB, `CREATE TABLE kept AS TABLE recourse.unique_jobs`, harm)
		if found, err := f.Audit(ctx); err != nil || len(found.Breaks) == 0 || !strings.Contains(found.Breaks[0].What, "unique") {
			t.Errorf("%s: the audit found %+v, %v", harm, found.Breaks, err)
		}
		testkit.Tamper(t, f.DB, `DELETE FROM recourse.unique_jobs`, `INSERT INTO recourse.unique_jobs TABLE kept`, `DROP TABLE kept`)
	}
	f.MustAudit()
}

// A retry with the fingerprint of a unique job waits for whoever decides about that fingerprint.
func TestARetryWaitsForTheLockOfItsFingerprint(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	dead := f.mustDie(func(j *jobs.Job) {
		j.Unique = &jobs.Unique{Fingerprint: [32]byte{7}, OnConflict: jobs.Reject, Conflicts: func(jobs.Status) bool { return false }}
	})
	tx, err := f.DB.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint := [32]byte{7}
	if _, err := tx.Exec(`SELECT pg_advisory_xact_lock(hashtextextended($1 || chr(31) || encode($2, 'hex'), 11))`, "acme", fingerprint[:]); err != nil {
		t.Fatal(err)
	}
	retried := make(chan error, 1)
	go func() {
		_, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, again)
		retried <- err
	}()
	f.WaitBlockedOnAdvisory()
	select {
	case err := <-retried:
		t.Errorf("the retry did not wait: %v", err)
	default:
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-retried; err != nil {
		t.Error(err)
	}
	f.MustAudit()
}

// A job that holds its fingerprint no longer is not in the way of a retry.
func TestARetryIsNotRefusedForAFingerprintThatIsFree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	unique := func(until time.Time) func(*jobs.Job) {
		return func(j *jobs.Job) {
			j.Unique = &jobs.Unique{Fingerprint: [32]byte{8}, Until: until, OnConflict: jobs.Reject, Conflicts: func(s jobs.Status) bool { return s.State.Live() }}
		}
	}
	dead := f.mustDie(unique(time.Time{}))
	until := time.Now().Add(500 * time.Millisecond)
	f.mustEnqueue(unique(until)) // lives on
	f.Wait("its fingerprint is free", func() bool { return time.Now().After(until.Add(time.Second)) })
	if _, err := f.Jobs.DeadLetters().Retry(context.Background(), dead.ID, again); err != nil {
		t.Errorf("refused for a job that holds its fingerprint no longer: %v", err)
	}
	f.MustAudit()
}

// A retry with changes is of the dead letter that they were made for.
func TestARetryIsOfTheDeadLetterThatItsChangesWereMadeFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	dead := f.mustDie()
	if _, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, again); err != nil {
		t.Fatal(err)
	}
	f.mustFail(f.mustFind(dead.ID))
	stale := again
	stale.Of = dead.Run
	if _, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, stale); err == nil {
		t.Error("the dead letter of an earlier run was retried")
	}
	stale.Of = f.mustFind(dead.ID).Run
	if _, err := f.Jobs.DeadLetters().Retry(ctx, dead.ID, stale); err != nil {
		t.Error(err)
	}
	f.MustAudit()
}
