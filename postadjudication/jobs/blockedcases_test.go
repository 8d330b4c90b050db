package jobs_test

import (
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// unblock removes what a person wrote, as the guide tells the owner to.
func (f *fixture) unblock(id string) {
	f.t.Helper()
	tx, err := f.DB.Begin()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, statement := range []string{
		`GRANT DELETE ON recourse.receipts TO CURRENT_USER`,
		`ALTER TABLE recourse.receipts DISABLE TRIGGER append_only`,
		`DELETE FROM recourse.receipts r USING recourse.cases c WHERE c.id = r.case_id AND r.seq > c.last_seq AND c.id = '` + id + `'`,
		`ALTER TABLE recourse.receipts ENABLE ALWAYS TRIGGER append_only`,
		`REVOKE DELETE ON recourse.receipts FROM CURRENT_USER`,
	} {
		if _, err := tx.Exec(statement); err != nil {
			f.t.Fatalf("%s: %v", statement, err)
		}
	}
	if err := tx.Commit(); err != nil {
		f.t.Fatal(err)
	}
}

// An order whose claim the database refuses keeps no other of its payment queue from being fetched, with and without a
// key of the fetch. It is counted, and given out once the owner has removed the receipt that a person wrote.
func TestAnOrderWhoseClaimCanNotBeRecordedStopsNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	blocked, _ := f.submitRemote(1)
	rig.AppendByHand(f.Rig, blocked.Case)
	var good []background.RunID
	for n := 2; n < 4; n++ {
		s, _ := f.submitRemote(n)
		good = append(good, s.Run)
	}
	for i, key := range []lease.FetchKey{{}, {1}} {
		got, err := f.Fetch(t.Context(), jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1", Key: key})
		if err != nil || len(got) != 1 || got[0].Run != good[i] {
			t.Fatalf("fetch %d: %+v, %v", i+1, got, err)
		}
	}
	f.fetchNoOrder()
	if n, err := f.Health().Blocked(t.Context()); n != 1 || err != nil || f.Health().Stats().Unreadable != 1 {
		t.Errorf("%d blocked, %v; %d counted", n, err, f.Health().Stats().Unreadable)
	}
	f.unblock(blocked.Case.String())
	if n, err := f.Health().Blocked(t.Context()); n != 0 || err != nil {
		t.Errorf("%d blocked after the owner removed the receipt, %v", n, err)
	}
	if got, err := f.other().Fetch(t.Context(), jobs.Fetch{Queues: []string{payouts}, Count: 1, Worker: "w1"}); err != nil || len(got) != 1 || got[0].Run != blocked.Run {
		t.Errorf("after the owner removed the receipt: %+v, %v", got, err)
	}
	f.MustAudit()
}

// Runs that a person made by hand, of no case, keep no order of a payment queue from being fetched.
func TestARunOfNoCaseStopsNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s, _ := f.submitRemote(1)
	if _, err := f.DB.Exec(`INSERT INTO recourse.runs (id, case_id, tenant, family, retry_key, operation_key, queue, target, policy, payload, state, live, active, attempt_count, last_transition, due_at, remote, priority)
		SELECT gen_random_uuid(), gen_random_uuid(), tenant, family, 'by hand', sha256('by hand'), queue, target, policy, payload, state, live, active, 0, gen_random_uuid(), due_at - interval '1 h', true, priority FROM recourse.runs WHERE id = $1`, s.Run.String()); err != nil {
		t.Fatal(err)
	}
	if o := f.mustFetchOrder("w1"); o.Run != s.Run {
		t.Errorf("got %s, want %s", o.Run, s.Run)
	}
}
