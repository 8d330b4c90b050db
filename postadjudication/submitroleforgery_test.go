package postadjudication_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// forgedCaseSQL writes a case of tenant mal by hand: a copy of the case $1 with its run and its receipt, and its place.
const forgedCaseSQL = `
WITH ids AS (
  SELECT gen_random_uuid() AS id, gen_random_uuid() AS run
), given AS (
  SELECT i.id, i.run, 'mal' AS tenant, 'sub' AS submission, c.content, r.policy, 'pending' AS state, '' AS letter, NULL::timestamptz AS dead_at, now() + interval '1 day' AS due_at, 'chores' AS family,
    'submitted' AS subtype, now() AS at, e.body, e.source
  FROM ids i, recourse.cases c JOIN recourse.runs r ON r.case_id = c.id JOIN recourse.receipts e ON e.case_id = c.id AND e.seq = 1 WHERE c.id = $1
), new_case AS (
  INSERT INTO recourse.cases (id, tenant, kind, subject, submission, content, run_id, last_seq, last_link)
  SELECT id, tenant, 'plain', id::text, submission, content, run, 1, decode(repeat('00', 32), 'hex') FROM given
), new_run AS (
  INSERT INTO recourse.runs (id, case_id, tenant, family, retry_key, queue, target, policy, state, live, letter, active, dead_at, due_at, last_transition)
  SELECT run, id, tenant, family, id::text, 'chores:0', 'nowhere', policy, state, state = 'pending', letter, true, dead_at, due_at, run FROM given
), receipt AS (
  INSERT INTO recourse.receipts (case_id, seq, run_id, tenant, source, subtype, actor, at, body, link)
  SELECT id, 1, run, tenant, source, subtype, 'user:mal', at, body, decode(repeat('00', 32), 'hex') FROM given
)
INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, ARRAY[id], ARRAY[1] FROM given`

// forgedCase returns forgedCaseSQL with other values: of each pair the first has the second in its place.
func forgedCase(changes ...string) string {
	return strings.NewReplacer(changes...).Replace(forgedCaseSQL)
}

// Whoever has the password of a submit role can't keep the events of a tenant, or the list of dead letters and their handlers of all tenants,
// from going on.
func TestASubmitRoleStopsNoEventsAndNoListOfDeadLetters(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	db := submitRole(r)
	r.StartWorkers()
	first := r.DeadLetter(1, rig.Refuses)
	if _, err := submitAs(r, db, rig.Release(2)); err != nil {
		t.Fatal(err)
	}
	for what, statement := range map[string]string{
		"places of no receipts":              `INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT 'acme', array_agg(gen_random_uuid()), array_agg(1) FROM generate_series(1, 3000), recourse.cases WHERE id = $1`,
		"a place of a receipt of another":    `INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT 'mal', ARRAY[$1::uuid], ARRAY[1::bigint]`,
		"a place of a later receipt":         `INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT 'acme', ARRAY[$1::uuid], ARRAY[2::bigint]`,
		"a dead letter of no time":           forgedCase("'pending' AS state", "'dead_lettered' AS state", "'' AS letter", "'open' AS letter", "NULL::timestamptz AS dead_at", "'infinity'::timestamptz AS dead_at"),
		"a dead letter":                      forgedCase("'pending' AS state", "'dead_lettered' AS state", "'' AS letter", "'open' AS letter", "NULL::timestamptz AS dead_at", "now() AS dead_at"),
		"a death":                            forgedCase("'submitted' AS subtype", "'dead-lettered' AS subtype"),
		"a receipt of no time":               forgedCase("now() AS at", "'infinity'::timestamptz AS at"),
		"a run of no time":                   forgedCase("now() + interval '1 day' AS due_at", "'infinity'::timestamptz AS due_at"),
		"a submission that no index takes":   forgedCase("'sub' AS submission", "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) n) AS submission"),
		"a run of a family that has no name": forgedCase("'chores' AS family", "' ' AS family"),
	} {
		_, err := db.Exec(statement, first.Case.String())
		var refused *pq.Error
		if !errors.As(err, &refused) || refused.Code != "42501" || !strings.HasPrefix(refused.Message, "recourse: ") {
			t.Errorf("%s: %v, want it refused", what, err)
		}
	}
	second := r.DeadLetter(3, rig.Refuses)
	if listed := r.Letters(deadletter.Filter{Transaction: "txr_3"}); len(listed) != 1 || listed[0].Run != second.Run {
		t.Errorf("the list of dead letters stopped: %+v", listed)
	}
	died := false
	var after postadjudication.Position
	for {
		page, next, err := r.Events(t.Context(), "acme", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			died = died || e.Run == second.Run && e.Type == "run.dead_lettered"
		}
		if next == after {
			break
		}
		after = next
	}
	if !died {
		t.Error("the events of acme stopped before the last death")
	}
}
