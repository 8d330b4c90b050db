package doctor_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/lib/pq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/cli/doctor"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

func find(t *testing.T, checks []doctor.Check, name string) doctor.Check {
	t.Helper()
	for _, c := range checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("%s was not checked: %v", name, checks)
	return doctor.Check{}
}

func TestWhatMayLoseCommitsOrNotificationsIsWrongAndHasARemedy(t *testing.T) {
	t.Parallel()
	server, opt := testkit.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: server.Password()})
	defer client.Close()
	if err := client.ConfigSet(context.Background(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	checks := doctor.Examine(t.Context(), testkit.Database(t)+"&synchronous_commit=off", opt)
	if checks[0].Verdict != doctor.Fine || checks[1].Name != "schema version" {
		t.Errorf("what comes first of a database without a schema: %+v", checks[:2])
	}
	for _, c := range checks {
		if c.Name == "receipts append-only" {
			t.Errorf("a database without a schema is reported as tampered with: %+v", c)
		}
	}
	if c := find(t, checks, "synchronous_commit"); c.Verdict != doctor.Hint || !strings.Contains(c.Result, "Recourse commits with on") || c.Remedy == "" {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{"schema version", "maxmemory-policy"} {
		if c := find(t, checks, name); c.Verdict != doctor.Wrong || c.Result == "" || c.Remedy == "" {
			t.Errorf("%+v", c)
		}
	}
	if c := find(t, checks, "schema version"); c.Result != "the database has no Recourse schema" || c.Remedy != "recourse migrate" {
		t.Errorf("the problem and the fix are repeated: %+v", c)
	}
	if doctor.Healthy(checks) {
		t.Error("healthy")
	}
}

func TestADatabaseOfAnotherEncodingIsWrong(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	testkit.SetEncoding(t, url, "LATIN1")
	if c := find(t, doctor.Examine(t.Context(), url, nil), "server"); c.Verdict != doctor.Wrong || !strings.Contains(c.Result, "LATIN1") || c.Remedy == "" {
		t.Errorf("%+v", c)
	}
}

func TestSoundServersAreFineAndHintsAreNotWrong(t *testing.T) {
	t.Parallel()
	_, opt := testkit.Redis(t)
	checks := doctor.Examine(t.Context(), testkit.Migrated(t)+"&synchronous_commit=on", opt)
	for _, name := range []string{"Postgres reachable", "Postgres version", "synchronous_commit", "receipts append-only", "database role", "clocks", "schema version", "server", "journal", "runs readable", "runs recordable", "escrow services called", "Redis of this database", "Redis reachable", "notifications", "maxmemory-policy"} {
		if c := find(t, checks, name); c.Verdict != doctor.Fine || c.Remedy != "" {
			t.Errorf("%+v", c)
		}
	}
	for _, name := range []string{"replication", "Redis persistence", "asynq queues"} {
		if c := find(t, checks, name); c.Verdict != doctor.Hint || c.Remedy == "" {
			t.Errorf("%+v", c)
		}
	}
	if !doctor.Healthy([]doctor.Check{{Verdict: doctor.Fine}, {Verdict: doctor.Hint}}) {
		t.Error("a hint made it sick")
	}
}

// A database that answers and refuses a receipt is wrong, in the words of the fault and of the server.
func TestADatabaseThatTakesNoReceiptIsWrong(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	owner := testkit.OpenAsOwner(t, url)
	for code, words := range map[string]string{
		"53100": "Postgres has no room on its disk (", "25006": "Postgres is read-only", "42501": "the role of Postgres may not do what is needed (", "22000": "pq: as the server says it",
	} {
		if _, err := owner.Exec(`CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'as the server says it' USING ERRCODE = '` + code + `'; END $$;
			CREATE OR REPLACE TRIGGER no_room BEFORE INSERT ON recourse.receipts EXECUTE FUNCTION public.refuse()`); err != nil {
			t.Fatal(err)
		}
		c := find(t, doctor.Examine(t.Context(), url, nil), "journal")
		if c.Verdict != doctor.Wrong || !strings.Contains(c.Result, "the journal cannot be written: "+words) || !strings.Contains(c.Result, "as the server says it") || c.Remedy == "" {
			t.Errorf("%s: %+v", code, c)
		}
	}
}

// A queue that a person paused is named, with its remedy.
func TestAPausedQueueIsNamed(t *testing.T) {
	t.Parallel()
	_, opt := testkit.Redis(t)
	client := opt.MakeRedisClient().(redis.UniversalClient)
	defer client.Close() // only used here
	inspector := asynq.NewInspector(opt)
	defer inspector.Close() // only read from
	for _, q := range []string{"settlement:0", "settlement:1"} {
		if err := client.SAdd(t.Context(), "asynq:queues", q).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := inspector.PauseQueue("settlement:1"); err != nil {
		t.Fatal(err)
	}
	if c := find(t, doctor.Examine(t.Context(), "", opt), "asynq queues"); c.Verdict != doctor.Hint || !strings.Contains(c.Result, "paused settlement:1") || !strings.Contains(c.Remedy, "unpause") {
		t.Errorf("%+v", c)
	}
}

// hidesSave makes clients to which the server does not reveal when it saves snapshots.
type hidesSave struct{ asynq.RedisConnOpt }

func (h hidesSave) MakeRedisClient() any {
	client := h.RedisConnOpt.MakeRedisClient().(*redis.Client)
	client.AddHook(h)
	return client
}

func (hidesSave) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hidesSave) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (hidesSave) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if asked, is := cmd.(*redis.MapStringStringCmd); is && cmd.Args()[len(cmd.Args())-1] == "save" {
			asked.SetVal(nil)
		}
		return err
	}
}

func TestASettingThatIsHiddenIsNotTakenForNone(t *testing.T) {
	t.Parallel()
	_, opt := testkit.Redis(t)
	database := testkit.Migrated(t)
	for want, of := range map[string]asynq.RedisConnOpt{"none": opt, "the server does not reveal it": hidesSave{opt}} {
		if c := find(t, doctor.Examine(t.Context(), database, of), "Redis persistence"); c.Verdict != doctor.Hint || c.Result != want {
			t.Errorf("%+v, want %q", c, want)
		}
	}
}

// A process connected as the owner could disable the triggers that protect the evidence.
func TestARoleThatOwnsTheTablesIsWrong(t *testing.T) {
	t.Parallel()
	owner := testkit.Owner(t, testkit.Migrated(t))
	db, err := sql.Open("postgres", owner)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	role := "role_" + uuid.NewString()[:13]
	quoted := pq.QuoteIdentifier(role)
	exec(`CREATE ROLE ` + quoted + ` LOGIN PASSWORD 'secret'`)
	defer exec(`DROP OWNED BY ` + quoted + `; DROP ROLE ` + quoted)
	own := testkit.As(t, owner, url.UserPassword(role, "secret"))
	examine := func(databaseURL string) doctor.Check {
		return find(t, doctor.Examine(t.Context(), databaseURL, nil), "database role")
	}
	if c := examine(owner); c.Verdict != doctor.Wrong || !strings.Contains(c.Result, "is a superuser") || !strings.Contains(c.Remedy, "recourse migrate --app-role NAME") {
		t.Errorf("the owner: %+v", c)
	}
	exec(`GRANT USAGE ON SCHEMA recourse TO ` + quoted + `; GRANT SELECT ON ALL TABLES IN SCHEMA recourse TO ` + quoted)
	if c := examine(own); c.Verdict != doctor.Hint || !strings.Contains(c.Result, "may read only") {
		t.Errorf("a read-only role: %+v", c)
	}
	if _, err := (postadjudication.Migration{DatabaseURL: owner, AppRole: role}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := examine(own); c.Verdict != doctor.Fine || c.Remedy != "" {
		t.Errorf("the role of the application: %+v", c)
	}
	exec(`GRANT TRUNCATE ON recourse.receipts TO ` + quoted)
	if c := examine(own); c.Verdict != doctor.Wrong || !strings.Contains(c.Result, "TRUNCATE on receipts") || !strings.Contains(c.Remedy, "--app-role "+role) {
		t.Errorf("a role with excess rights: %+v", c)
	}
	exec(`ALTER TABLE recourse.receipts OWNER TO ` + quoted)
	if c := examine(own); c.Verdict != doctor.Wrong || !strings.Contains(c.Result, "owns the database, or what is in the schema") {
		t.Errorf("the owner of a table: %+v", c)
	}
	exec(`ALTER TABLE recourse.receipts OWNER TO CURRENT_USER`)
}

func TestServersThatAreAwayAreOneCheckEach(t *testing.T) {
	t.Parallel()
	checks := doctor.Examine(t.Context(), "postgres://u@127.0.0.1:1/d?sslmode=disable", asynq.RedisClientOpt{Addr: "127.0.0.1:1"})
	if len(checks) != 2 || checks[0].Verdict != doctor.Wrong || checks[1].Verdict != doctor.Wrong {
		t.Errorf("%+v", checks)
	}
}
