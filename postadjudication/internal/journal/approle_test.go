package journal_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// makeRole creates a role on the server, with a name that must be quoted, and drops it when
// the test ends.
func makeRole(t *testing.T, db *sql.DB, attributes string) string {
	t.Helper()
	name := `an "odd" Role'` + uuid.NewString()[:13]
	if _, err := db.Exec(`CREATE ROLE ` + pq.QuoteIdentifier(name) + ` LOGIN PASSWORD 'secret' ` + attributes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec(`DROP OWNED BY ` + pq.QuoteIdentifier(name) + `; DROP ROLE ` + pq.QuoteIdentifier(name)); err != nil {
			t.Error(err)
		}
	})
	return name
}

// urlAs returns a URL that connects as a role of makeRole.
func urlAs(t *testing.T, databaseURL, role string) string {
	t.Helper()
	return testkit.As(t, databaseURL, url.UserPassword(role, "secret"))
}

func migrateFor(t *testing.T, m schema.Migration) schema.MigrationResult {
	t.Helper()
	done, err := m.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func roleOf(t *testing.T, j *journal.Journal) schema.Role {
	t.Helper()
	r, err := schema.ReadRole(context.Background(), j.Reads())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheAppRoleDoesTheWorkAndCanTurnNothingOff(t *testing.T) {
	t.Parallel()
	ctx, owner := context.Background(), testkit.Database(t)
	role := makeRole(t, testkit.OpenAsOwner(t, owner), "")
	if done := migrateFor(t, schema.Migration{DatabaseURL: owner, AppRole: role}); done.From != 0 || done.To < 100 || done.AppRole != role {
		t.Errorf("%+v", done)
	}
	own := urlAs(t, owner, role)
	j := journaltest.Open(t, own)
	if err := errors.Join(schema.CheckPrivileges(ctx, j.Reads()), schema.CheckGuards(ctx, j.Reads())); err != nil {
		t.Error(err)
	}
	if r := roleOf(t, j); r.Name != role || r.AppRole != role || r.Power != "" || len(r.Missing)+len(r.Excess) > 0 {
		t.Errorf("%+v", r)
	}
	s, err := j.Submit(ctx, settlementOf("esc_1", "txr_1"))
	if err != nil {
		t.Fatal(err)
	}
	claim := journaltest.Transition(receipts.AttemptStarted, s.Run)
	if after, err := j.CommitTransition(ctx, s.Run.ID, claim.ID, journaltest.Decide(claim)); err != nil || after.Run.State != background.Running {
		t.Errorf("%+v, %v", after, err)
	}
	db := testkit.OpenAsOwner(t, own)
	for _, statement := range []string{
		`UPDATE recourse.receipts SET body = 'x'`, `DELETE FROM recourse.receipts`, `TRUNCATE recourse.receipts`, `UPDATE recourse.event_log SET last = 7`, `DELETE FROM recourse.event_log`,
		`DELETE FROM recourse.runs`, `DELETE FROM recourse.cases`, `DELETE FROM recourse.escrows`, `DELETE FROM recourse.operations`, `UPDATE recourse.operations SET request = 'x'`,
		`INSERT INTO recourse.app_roles (name) VALUES ('eve')`, `INSERT INTO recourse.schema_version (version_id, is_applied) VALUES (9999, true)`,
		`ALTER TABLE recourse.receipts DISABLE TRIGGER append_only`, `DROP TRIGGER append_only ON recourse.receipts`, `CREATE TRIGGER t BEFORE INSERT ON recourse.receipts FOR EACH STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite()`,
		`CREATE OR REPLACE FUNCTION recourse.refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`, `DROP TABLE recourse.outbox`, `CREATE TABLE recourse.mine ()`, `DROP SCHEMA recourse CASCADE`,
		`SET session_replication_role = replica`, `CREATE DATABASE mine`, `CREATE ROLE eve`,
	} {
		_, err := db.Exec(statement)
		var refused *pq.Error
		if !errors.As(err, &refused) || refused.Code != "42501" || strings.HasPrefix(refused.Message, "recourse: ") {
			t.Errorf("%s: %v, want to have no permission", statement, err)
		}
	}
}

// Privileges on new tables are granted, and manual grants and revokes are undone.
func TestEveryMigrationGrantsAgain(t *testing.T) {
	t.Parallel()
	ctx, owner := context.Background(), testkit.Owner(t, testkit.Migrated(t))
	db := testkit.OpenAsOwner(t, owner)
	role := makeRole(t, db, "")
	migrateFor(t, schema.Migration{DatabaseURL: owner, AppRole: role})
	j := journaltest.Open(t, urlAs(t, owner, role))
	for _, statement := range []string{
		`CREATE TABLE recourse.later (n bigint GENERATED ALWAYS AS IDENTITY)`, `REVOKE INSERT ON recourse.runs FROM ` + pq.QuoteIdentifier(role),
		`GRANT TRIGGER, DELETE ON recourse.receipts TO ` + pq.QuoteIdentifier(role), `GRANT CREATE ON SCHEMA recourse TO ` + pq.QuoteIdentifier(role),
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	r := roleOf(t, j)
	if !slices.Equal(r.Excess, []string{"CREATE on the schema", "DELETE on receipts", "TRIGGER on receipts"}) {
		t.Errorf("excess: %v", r.Excess)
	}
	if missing := []string{"USAGE on later_n_seq", "DELETE on later", "INSERT on later", "SELECT on later", "UPDATE on later", "INSERT on runs"}; !slices.Equal(r.Missing, missing) {
		t.Errorf("missing: %v", r.Missing)
	}
	if err := schema.CheckPrivileges(ctx, j.Reads()); !errors.Is(err, schema.ErrSchema) || !strings.Contains(err.Error(), "and 1 more; run: recourse migrate --app-role "+role) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if done := migrateFor(t, schema.Migration{DatabaseURL: owner}); done.AppRole != role {
		t.Errorf("%+v", done)
	}
	if r := roleOf(t, j); len(r.Missing)+len(r.Excess) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestAnotherAppRoleTakesThePlaceAndNoneLeavesIt(t *testing.T) {
	t.Parallel()
	owner := testkit.Owner(t, testkit.Migrated(t))
	db := testkit.OpenAsOwner(t, owner)
	first, second := makeRole(t, db, ""), makeRole(t, db, "")
	granted := func(role string) (n int) {
		t.Helper()
		if err := db.QueryRow(`SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, unnest(ARRAY['SELECT', 'INSERT']) p WHERE n.nspname = 'recourse' AND c.relkind = 'r' AND has_table_privilege($1, c.oid, p)`, role).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	migrateFor(t, schema.Migration{DatabaseURL: owner, AppRole: first})
	all := granted(first)
	migrateFor(t, schema.Migration{DatabaseURL: owner, AppRole: second})
	if all == 0 || granted(first) != 0 || granted(second) != all {
		t.Errorf("%d, then %d and %d", all, granted(first), granted(second))
	}
	for _, m := range []schema.Migration{{NoAppRole: true}, {}} {
		m.DatabaseURL = owner
		if done := migrateFor(t, m); done.AppRole != "" || granted(second) != 0 {
			t.Errorf("%+v, and %d privileges", done, granted(second))
		}
	}
	if _, err := journal.Open(context.Background(), urlAs(t, owner, second)); !errors.Is(err, schema.ErrSchema) || !strings.Contains(err.Error(), "recourse migrate --app-role") {
		t.Errorf("opened by a role without grants: %v", err)
	}
}

// Privileges are revoked only once no process uses the role.
func TestNothingIsTakenFromARoleThatAProcessWorksAs(t *testing.T) {
	t.Parallel()
	ctx, owner := context.Background(), testkit.Owner(t, testkit.Migrated(t))
	db := testkit.OpenAsOwner(t, owner)
	first, second := makeRole(t, db, ""), makeRole(t, db, "")
	migrateFor(t, schema.Migration{DatabaseURL: owner, AppRole: first})
	j := journaltest.Open(t, urlAs(t, owner, first))
	s := background.Session{ID: background.SessionID(uuid.New()), Worker: "till-7", Queues: []string{}}
	register := func(by *journal.Journal, s background.Session) {
		t.Helper()
		if err := by.Sessions.Register(ctx, s); err != nil {
			t.Fatal(err)
		}
		now, err := by.Sessions.Clock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.BeatAt = now.At
		if alive, _, err := by.Sessions.Beat(ctx, s); err != nil || !alive {
			t.Fatal(alive, err)
		}
	}
	register(j, s)
	refused := func(what, words string) {
		t.Helper()
		for _, m := range []schema.Migration{{AppRole: second}, {NoAppRole: true}} {
			m.DatabaseURL = owner
			_, err := m.Run(ctx)
			if !errors.Is(err, schema.ErrAppRole) || !strings.Contains(err.Error(), "till-7 ("+words+")") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %+v: %v", what, m, err)
			}
		}
		if r := roleOf(t, j); r.AppRole != first || len(r.Missing) > 0 {
			t.Errorf("%s: %+v", what, r)
		}
	}
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	refused("its role is the app role", "role "+first)
	register(journaltest.Open(t, owner), background.Session{ID: background.SessionID(uuid.New()), Worker: "of the owner", Queues: []string{}})
	if done := migrateFor(t, schema.Migration{DatabaseURL: owner, AppRole: first}); done.AppRole != first {
		t.Errorf("%+v", done)
	}
	exec(`UPDATE recourse.sessions SET role = '' WHERE worker = 'till-7'`)
	refused("its role is unknown", "a role that it does not say")

	register(j, s) // reports its role again
	exec(`GRANT ` + pq.QuoteIdentifier(second) + ` TO ` + pq.QuoteIdentifier(first))
	if done := migrateFor(t, schema.Migration{DatabaseURL: owner, AppRole: second}); done.AppRole != second {
		t.Errorf("%+v", done)
	}
	if r := roleOf(t, j); len(r.Missing) > 0 {
		t.Errorf("a member of the new app role: %+v", r)
	}
	exec(`UPDATE recourse.sessions SET beat_at = started_at - interval '1 minute'`)
	if done := migrateFor(t, schema.Migration{DatabaseURL: owner, NoAppRole: true}); done.AppRole != "" {
		t.Errorf("%+v", done)
	}
}

// A role that could disable the triggers is refused, and nothing is changed.
func TestARoleThatCouldDoMoreIsRefused(t *testing.T) {
	t.Parallel()
	ctx, owner := context.Background(), testkit.Owner(t, testkit.Migrated(t))
	db := testkit.OpenAsOwner(t, owner)
	ours, super, maker, member, table, empty := makeRole(t, db, ""), makeRole(t, db, "SUPERUSER"), makeRole(t, db, "CREATEROLE"), makeRole(t, db, ""), makeRole(t, db, ""), testkit.Database(t)
	for _, statement := range []string{
		`GRANT ` + pq.QuoteIdentifier(super) + ` TO ` + pq.QuoteIdentifier(member),
		`CREATE TABLE recourse.theirs (); ALTER TABLE recourse.theirs OWNER TO ` + pq.QuoteIdentifier(table),
	} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	migrateFor(t, schema.Migration{DatabaseURL: owner, AppRole: ours})
	for role, words := range map[string]string{
		super: "is a superuser", maker: "may make roles", member: "is a member of " + super, table: "owns the database, or what is in the schema", "nobody at all": `CREATE ROLE "nobody at all" LOGIN PASSWORD`,
	} {
		for _, at := range []string{owner, empty} {
			if at == empty && role == table {
				continue // it owns nothing there
			}
			_, err := schema.Migration{DatabaseURL: at, AppRole: role}.Run(ctx)
			if !errors.Is(err, schema.ErrAppRole) || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %q", role, err, words)
			}
		}
	}
	if r := roleOf(t, journaltest.Open(t, urlAs(t, owner, ours))); r.AppRole != ours || len(r.Missing) > 0 {
		t.Errorf("%+v", r)
	}
	if _, err := journal.Open(ctx, empty); !errors.Is(err, schema.ErrSchema) {
		t.Errorf("opened an empty database: %v", err)
	}
	if r := roleOf(t, journaltest.Open(t, urlAs(t, owner, super))); r.Power != "is a superuser" || len(r.Missing) > 0 {
		t.Errorf("%+v", r)
	}

	if _, err := db.Exec(`ALTER ROLE ` + pq.QuoteIdentifier(ours) + ` SUPERUSER`); err != nil { // after it became the app role
		t.Fatal(err)
	}
	if _, _, err := schema.Migrate(ctx, owner); !errors.Is(err, schema.ErrAppRole) {
		t.Errorf("migrated with a superuser as app role: %v", err)
	}
}
