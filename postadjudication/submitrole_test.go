package postadjudication_test

import (
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// submitRole makes a role that may submit, and nothing else, and connects as it.
func submitRole(r *rig.Rig) *sql.DB {
	r.T.Helper()
	name := "shop_" + uuid.NewString()[:13]
	if _, err := r.DB.Exec(`CREATE ROLE ` + pq.QuoteIdentifier(name) + ` LOGIN PASSWORD 'secret'`); err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() {
		if _, err := r.DB.Exec(`DROP OWNED BY ` + pq.QuoteIdentifier(name) + `; DROP ROLE ` + pq.QuoteIdentifier(name)); err != nil {
			r.T.Error(err)
		}
	})
	done, err := postadjudication.Migration{DatabaseURL: testkit.Owner(r.T, r.DatabaseURL), SubmitRole: name}.Run(r.T.Context())
	if err != nil || len(done.SubmitRoles) != 1 || done.SubmitRoles[0] != name || done.AppRole == "" {
		r.T.Fatalf("%+v, %v", done, err)
	}
	return testkit.OpenAsOwner(r.T, testkit.As(r.T, r.DatabaseURL, url.UserPassword(name, "secret")))
}

// submitAs submits in a transaction of another role, and commits.
func submitAs(r *rig.Rig, db *sql.DB, a postadjudication.Adjudication) (postadjudication.Reply, error) {
	r.T.Helper()
	tx, err := db.Begin()
	if err != nil {
		r.T.Fatal(err)
	}
	s, err := r.SubmitTx(r.T.Context(), tx, a)
	if commit := tx.Commit(); commit != nil {
		r.T.Errorf("%s: %v, then %v", a.TransactionReceiptID, err, commit)
	}
	return s.Reply, err
}

func TestTheSubmitRoleSubmitsAndChangesNothingThatExists(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	db := submitRole(r)
	r.StartWorkers()
	letter := r.DeadLetters(1, 2, rig.Refuses)[0]
	for _, a := range []postadjudication.Adjudication{rig.Release(2), rig.Release(3)} {
		if reply, err := submitAs(r, db, a); err != nil || reply != postadjudication.Created {
			t.Errorf("%s: %s, %v", a.TransactionReceiptID, reply, err)
		}
	}
	r.WaitNoneLive()
	if reply, err := submitAs(r, db, rig.Release(2)); err != nil || reply != postadjudication.AlreadyExecuted {
		t.Errorf("again: %s, %v", reply, err)
	}
	higher := rig.Release(1)
	higher.Generation = 2
	if reply, err := submitAs(r, db, higher); !errors.Is(err, postadjudication.ErrSubmitRole) || reply != "" {
		t.Errorf("a higher generation: %s, %v", reply, err)
	}
	if s, err := r.Submit(t.Context(), higher); err != nil || s.Reply != postadjudication.Created {
		t.Errorf("the same by the service: %+v, %v", s, err)
	}
	r.WaitNoneLive()
	r.MustAudit()
	for _, statement := range []string{
		`SELECT FROM recourse.letters`, `SELECT FROM recourse.keys`, `SELECT FROM recourse.webhooks`, `SELECT FROM recourse.sessions`, `SELECT FROM recourse.outbox`, `SELECT FROM recourse.event_log`,
		`UPDATE recourse.runs SET state = 'succeeded'`, `UPDATE recourse.cases SET released = 1`, `DELETE FROM recourse.cases`, `UPDATE recourse.receipts SET body = 'x'`, `DELETE FROM recourse.receipts`,
		`UPDATE recourse.escrows SET reference = 'x'`, `INSERT INTO recourse.escrow_deltas (escrow_id, case_id, seq, delta) SELECT id, gen_random_uuid(), 1, 1 FROM recourse.escrows`,
		`UPDATE recourse.installation SET timeline = 7`, `DELETE FROM recourse.outbox`, `INSERT INTO recourse.people (tenant, people, actor, reason) VALUES ('acme', 1, 'a', 'b')`,
	} {
		_, err := db.Exec(statement)
		var refused *pq.Error
		if !errors.As(err, &refused) || refused.Code != "42501" || strings.HasPrefix(refused.Message, "recourse: ") {
			t.Errorf("%s: %v, want to have no permission", statement, err)
		}
	}
	// Nor does it add a receipt to a case that exists: the next one of that case could not be recorded.
	_, err := db.Exec(`INSERT INTO recourse.receipts SELECT case_id, seq + 1, run_id, tenant, source, subtype, actor, at, body, link FROM recourse.receipts r
		WHERE case_id = $1 AND seq = (SELECT max(seq) FROM recourse.receipts WHERE case_id = $1)`, letter.Case.String())
	var refused *pq.Error
	if !errors.As(err, &refused) || refused.Code != "42501" || !strings.HasPrefix(refused.Message, "recourse: ") {
		t.Errorf("a receipt appended by hand: %v", err)
	}
	rig.AppendByHand(r, letter.Case)
	if a, err := r.Audit(t.Context()); err != nil || a.OK() {
		t.Errorf("a receipt appended by hand by the owner was not found: %v", err)
	}
}

// What a submit role was granted by hand is taken back, and what was taken is granted again, by every migrate; neither the app role nor a
// member of it can be one.
func TestEveryMigrateKeepsSubmitRolesAsTheyAre(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	db := submitRole(r)
	var name string
	if err := db.QueryRow(`SELECT current_user`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	quoted := pq.QuoteIdentifier(name)
	if _, err := r.DB.Exec(`GRANT UPDATE ON recourse.runs TO ` + quoted + `; REVOKE SELECT ON recourse.cases FROM ` + quoted); err != nil {
		t.Fatal(err)
	}
	migration := postadjudication.Migration{DatabaseURL: testkit.Owner(t, r.DatabaseURL)}
	if done, err := migration.Run(t.Context()); err != nil || len(done.SubmitRoles) != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if reply, err := submitAs(r, db, rig.Release(1)); err != nil || reply != postadjudication.Created {
		t.Errorf("%s, %v", reply, err)
	}
	if _, err := db.Exec(`UPDATE recourse.runs SET state = state`); err == nil {
		t.Error("it may update runs")
	}
	u, err := url.Parse(r.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.DB.Exec(`GRANT ` + pq.QuoteIdentifier(u.User.Username()) + ` TO ` + quoted); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{u.User.Username(), name} {
		migration.SubmitRole = role
		if done, err := migration.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "may do more than submit") {
			t.Errorf("%s: %+v, %v", role, done, err)
		}
	}
}
