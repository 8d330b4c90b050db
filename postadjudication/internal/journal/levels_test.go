package journal_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Levels count open dead letters and what is on hold among them: no live run, and no letter that is closed. Queues
// beyond the hundred with the most letters are counted together.
func TestLevelsCountOpenLetters(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	db := testkit.OpenAsOwner(t, url)
	const queues, closed, live = 105, 3, 7
	for _, query := range []string{
		fmt.Sprintf(`CREATE TABLE recourse.made AS SELECT n, gen_random_uuid() AS run, gen_random_uuid() AS kase, n >= %d AS closed, n >= %d AS live FROM generate_series(0, %d) n`, queues, queues+closed, queues+closed+live-1),
		`INSERT INTO recourse.runs (id, case_id, tenant, family, retry_key, queue, target, policy, payload, state, live, active, letter, attempt_count, last_transition, due_at, dead_at, remote)
			SELECT run, kase, 'acme', 'ojs', 'job_' || n, 'q' || n, 'mail.send', '` + retrypolicy.Policy{}.Normalize().Encode() + `', '{}', CASE WHEN live THEN 'scheduled' ELSE 'dead_lettered' END,
			live, live OR NOT closed, CASE WHEN live THEN '' WHEN closed THEN 'reconciled' ELSE 'open' END, 1, gen_random_uuid(), now() + interval '1 h', CASE WHEN NOT live THEN now() END, NOT live FROM recourse.made`,
		`INSERT INTO recourse.cases (id, tenant, kind, subject, content, run_id, last_seq, last_link) SELECT kase, 'acme', 'plain', 'ojs:' || n, 'x', run, 1, sha256('x') FROM recourse.made`,
		`INSERT INTO recourse.annotations (run_id, tenant, held, hold_reason) SELECT run, 'acme', true, 'asked' FROM recourse.made WHERE NOT live`,
	} {
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	l := journaltest.Open(t, url).Levels.Read(t.Context(), time.Now())
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, n := range l.JobLetters {
		sum += n
	}
	if l.Runs[background.DeadLettered] != queues || l.Runs[background.Scheduled] != live || l.Held != queues || sum != queues || len(l.JobLetters) != 101 || l.JobLetters[journal.OtherQueues] != 5 {
		t.Errorf("%d dead letters in %d queues, %d of them others, %d live, %d held", l.Runs[background.DeadLettered], len(l.JobLetters), l.JobLetters[journal.OtherQueues], l.Runs[background.Scheduled], l.Held)
	}
}
