package journal_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
)

// A session that is being removed while a run is claimed under it stays: the claim holds
// its row, and is seen once it is committed.
func TestASessionThatHasJustClaimedIsNotForgotten(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db, ctx := journaltest.Open(t, url), testkit.OpenAsOwner(t, url), context.Background()
	session := background.Session{ID: uuid.New(), Worker: "w"}
	if err := j.Sessions.Register(ctx, session); err != nil {
		t.Fatal(err)
	}
	s := journaltest.Submit(t, j)
	// The lock that the claim's statement takes, held for a moment.
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{
		`SELECT id FROM recourse.sessions WHERE id = $1 AND NOT lost FOR KEY SHARE`,
		`UPDATE recourse.runs SET state = 'running', attempt_count = 1, token = gen_random_uuid(), session_id = $1 WHERE id = '` + s.Run.ID.String() + `'`,
	} {
		if _, err := tx.Exec(step, session.ID.String()); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- j.Sessions.Remove(ctx, session.ID) }()
	for waits := false; !waits; {
		if err := db.QueryRow(`SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if all, err := otherSessions(j); err != nil || len(all) != 1 {
		t.Errorf("sessions %v, %v", all, err)
	}
	if _, err := db.Exec(`UPDATE recourse.runs SET state = 'succeeded', live = false, active = false`); err != nil {
		t.Fatal(err)
	}
	if err := j.Sessions.Remove(ctx, session.ID); err != nil {
		t.Fatal(err)
	}
	if all, err := otherSessions(j); err != nil || len(all) != 0 {
		t.Errorf("sessions %v, %v", all, err)
	}
}

// MissingSessions finds sessions that running runs name and that do not exist, page by
// page.
func TestMissingSessionsAreFoundPageByPage(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db, ctx := journaltest.Open(t, url), testkit.OpenAsOwner(t, url), context.Background()
	known := background.Session{ID: uuid.New(), Worker: "w"}
	if err := j.Sessions.Register(ctx, known); err != nil {
		t.Fatal(err)
	}
	gone := []background.SessionID{uuid.New(), {}}
	for n := range 7 {
		s := journaltest.Submit(t, j)
		var session any
		switch n {
		case 1, 2:
			session = known.ID.String()
		case 4:
			session = gone[0].String()
		case 6: // no session at all
		default:
			continue // stays waiting
		}
		if _, err := db.Exec(`UPDATE recourse.runs SET state = 'running', attempt_count = 1, token = gen_random_uuid(), session_id = $2 WHERE id = $1`, s.Run.ID.String(), session); err != nil {
			t.Fatal(err)
		}
	}
	for _, page := range []int{1, 2, 3, 7, 100} {
		var found []background.SessionID
		looks := 0
		for after, more := (background.Cursor{}), true; more; looks++ {
			ids, next, err := j.Sessions.MissingSessions(ctx, after, page)
			if err != nil {
				t.Fatal(err)
			}
			found, after, more = append(found, ids...), next, next != background.Cursor{}
		}
		if looks != 7/page+1 || len(found) != 2 || !slices.Contains(found, gone[0]) || !slices.Contains(found, gone[1]) {
			t.Errorf("pages of %d: %v after %d calls", page, found, looks)
		}
	}
	for _, id := range gone {
		if left, err := j.Sessions.AttemptsOf(ctx, id, 10); err != nil || len(left) != 1 {
			t.Errorf("under %s: %v, %v", id, left, err)
		}
	}
}

// Beat returns the time and the identity of the database server, and stores the clock
// offset of the process.
func TestABeatReadsTheDatabasesClock(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, ctx := journaltest.Open(t, url), context.Background()
	session := background.Session{ID: uuid.New(), Worker: "w"}
	if err := j.Sessions.Register(ctx, session); err != nil {
		t.Fatal(err)
	}
	off := -1500 * time.Microsecond
	before := time.Now()
	alive, now, err := j.Sessions.Beat(ctx, background.Session{ID: session.ID, ClockOffset: &off, Queues: []string{"settlement:0", "settlement:1"}, ClaimsBlockedBy: background.BlockedByClock})
	if err != nil || !alive || now.Server == "" || now.At.Before(before.Add(-time.Second)) || now.At.After(time.Now().Add(time.Second)) {
		t.Fatalf("%v, %+v, %v", alive, now, err)
	}
	again, err := j.Sessions.Clock(ctx)
	if err != nil || again.Server != now.Server || !again.At.After(now.At) {
		t.Errorf("%+v, %v", again, err)
	}
	all, err := otherSessions(j)
	if err != nil || len(all) != 1 || all[0].Beat != 1 || all[0].ClockOffset == nil || *all[0].ClockOffset != off {
		t.Errorf("%+v, %v", all, err)
	}
	if alive, _, err := j.Sessions.Beat(ctx, background.Session{ID: uuid.New()}); alive || err != nil {
		t.Errorf("beat of an unknown session: %v, %v", alive, err)
	}
}

// A heartbeat keeps from where the database's clock was set back, by what was read from it before or what the process
// knows by its monotonic clock, and the highest of all times; whoever reads the clock learns it. Under a second is not
// set back, and a heartbeat waits for nobody who holds the row.
func TestAHeartbeatKeepsThatTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db, ctx := journaltest.Open(t, url), testkit.OpenAsOwner(t, url), context.Background()
	if _, err := j.Database.Install(ctx, false); err != nil {
		t.Fatal(err)
	}
	session := background.Session{ID: uuid.New(), Worker: "w", Queues: []string{"settlement:0"}}
	if err := j.Sessions.Register(ctx, session); err != nil {
		t.Fatal(err)
	}
	begun := time.Now().Truncate(time.Microsecond)
	beat := func(known, want time.Time) {
		t.Helper()
		session.ClockAtLeast = known
		alive, now, err := j.Sessions.Beat(ctx, session)
		if err != nil || !alive || !now.SetBack.Equal(want) {
			t.Errorf("%v, set back from %s, %v, want %s", alive, now.SetBack, err, want)
		}
		if read, err := j.Sessions.Clock(ctx); err != nil || !read.SetBack.Equal(want) {
			t.Errorf("set back from %s, %v, want %s", read.SetBack, err, want)
		}
	}
	exec := func(by interface {
		Exec(string, ...any) (sql.Result, error)
	}, statement string, args ...any) {
		t.Helper()
		if _, err := by.Exec(statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	beat(time.Time{}, time.Time{})
	beat(begun, time.Time{})
	exec(db, `UPDATE recourse.installation SET clock_read = clock_timestamp() + interval '900ms'`)
	beat(time.Time{}, time.Time{})
	hour := begun.Add(time.Hour)
	beat(hour, hour)
	beat(begun.Add(time.Minute), hour)
	beat(time.Time{}, hour)
	day := begun.Add(24 * time.Hour)
	exec(db, `UPDATE recourse.installation SET clock_read = $1`, day)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	exec(tx, `SELECT FROM recourse.installation FOR UPDATE`)
	beat(time.Time{}, day)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	beat(time.Time{}, day)
	exec(db, `UPDATE recourse.installation SET clock_read = NULL`)
	beat(time.Time{}, day)
}

// A heartbeat keeps since when the clock is unchanged: since the latest time to which a process found it set, since it was
// set back, and since the first heartbeat after none followed it for LostAfter. A process that has not yet found that the
// clock was set back states a time to come, which does not count.
func TestAHeartbeatKeepsSinceWhenTheClockIsUnchanged(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db, ctx := journaltest.Open(t, url), testkit.OpenAsOwner(t, url), context.Background()
	if _, err := j.Database.Install(ctx, false); err != nil {
		t.Fatal(err)
	}
	session := background.Session{ID: uuid.New(), Worker: "w", Queues: []string{"settlement:0"}, LostAfter: time.Minute}
	if err := j.Sessions.Register(ctx, session); err != nil {
		t.Fatal(err)
	}
	begun := time.Now().Truncate(time.Microsecond)
	beat := func(changedTo time.Time) time.Time {
		t.Helper()
		session.ClockChangedTo = changedTo
		alive, now, err := j.Sessions.Beat(ctx, session)
		if err != nil || !alive {
			t.Fatal(alive, err)
		}
		if read, err := j.Sessions.Clock(ctx); err != nil || !read.UnchangedSince.Equal(now.UnchangedSince) {
			t.Errorf("the clock is unchanged since %s, %v, and a heartbeat read %s", read.UnchangedSince, err, now.UnchangedSince)
		}
		return now.UnchangedSince
	}
	for _, step := range []struct{ changedTo, want time.Time }{
		{}, {begun.Add(-time.Hour), begun.Add(-time.Hour)}, {begun.Add(-2 * time.Hour), begun.Add(-time.Hour)}, {begun.Add(time.Hour), begun.Add(-time.Hour)},
		{begun, begun}, {time.Time{}, begun},
	} {
		if got := beat(step.changedTo); !got.Equal(step.want) {
			t.Errorf("changed to %s: unchanged since %s, want %s", step.changedTo, got, step.want)
		}
	}
	last := begun
	for _, was := range []string{"- interval '61s'", "+ interval '2s'"} {
		if _, err := db.Exec(`UPDATE recourse.installation SET clock_read = clock_timestamp() ` + was); err != nil {
			t.Fatal(err)
		}
		if last, begun = beat(time.Time{}), last; !last.After(begun) {
			t.Errorf("after a heartbeat at the clock's time %s: unchanged since %s", was, last)
		}
	}
	if _, err := db.Exec(`UPDATE recourse.installation SET clock_read = clock_timestamp() - interval '59s'`); err != nil {
		t.Fatal(err)
	}
	if got := beat(time.Time{}); !got.Equal(last) {
		t.Errorf("after 59 seconds without heartbeat: %s, want %s", got, last)
	}
}

// otherSessions returns the sessions except the one that open registers.
func otherSessions(j *journal.Journal) ([]background.Session, error) {
	all, err := j.Sessions.Sessions(context.Background())
	return slices.DeleteFunc(all, func(s background.Session) bool { return s.ID == journaltest.Session }), err
}

// An observer does not mark a session as lost that has sent a heartbeat since the observer read it: its process is alive,
// and calls escrow services under it.
func TestASessionThatBeatsAfterItWasReadIsNotLost(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, ctx := journaltest.Open(t, url), context.Background()
	session := background.Session{ID: uuid.New(), Worker: "w", Queues: []string{"q"}}
	if err := j.Sessions.Register(ctx, session); err != nil {
		t.Fatal(err)
	}
	read, err := otherSessions(j)
	if err != nil || len(read) != 1 {
		t.Fatalf("%v, %v", read, err)
	}
	if known, _, err := j.Sessions.Beat(ctx, session); err != nil || !known {
		t.Fatal(known, err)
	}
	if lost, err := j.Sessions.MarkLost(ctx, read[0]); err != nil || lost {
		t.Errorf("lost %v, %v", lost, err)
	}
	if known, _, err := j.Sessions.Beat(ctx, session); err != nil || !known {
		t.Errorf("the next heartbeat: %v, %v", known, err)
	}
	if read, err = otherSessions(j); err != nil || len(read) != 1 {
		t.Fatalf("%v, %v", read, err)
	}
	if lost, err := j.Sessions.MarkLost(ctx, read[0]); err != nil || !lost {
		t.Errorf("after no heartbeat: lost %v, %v", lost, err)
	}
}

// A process without a heartbeat since a time calls no target and serves no queue, though nobody has marked it lost: what it
// called is counted, and another process may use another circuit breaker for it.
func TestAProcessWithoutAHeartbeatServesNothing(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, db, ctx := journaltest.Open(t, url), testkit.OpenAsOwner(t, url), context.Background()
	since := time.Now().Add(-time.Minute)
	s := journaltest.Submit(t, j)
	if err := j.Targets.Record(ctx, s.Run.Family, map[string]string{s.Run.Target: s.Run.Target}, since); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO recourse.sessions (id, worker, started_at, beat_at, queues, targets) VALUES (gen_random_uuid(), 'w', $1, $1, $2, $3)`,
		since.Add(time.Second), pq.Array([]string{s.Run.Queue}), pq.Array([]string{s.Run.Target})); err != nil {
		t.Fatal(err)
	}
	for _, alive := range []bool{true, false} {
		if !alive {
			if _, err := db.Exec(`UPDATE recourse.sessions SET beat_at = $1`, since.Add(-time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		unserved, err := j.Levels.Unserved(ctx, since)
		if err != nil || (len(unserved) == 0) != alive {
			t.Errorf("alive %t: %+v is not served, %v", alive, unserved, err)
		}
		uncalled, err := j.Levels.Uncalled(ctx, s.Run.Family, since)
		if err != nil || (len(uncalled) == 0) != alive {
			t.Errorf("alive %t: %+v is not called, %v", alive, uncalled, err)
		}
		if err := j.Targets.Record(ctx, s.Run.Family, map[string]string{s.Run.Target: "other"}, since); errors.Is(err, journal.ErrTargetsDiffer) != alive {
			t.Errorf("alive %t: another circuit breaker: %v", alive, err)
		}
	}
}
