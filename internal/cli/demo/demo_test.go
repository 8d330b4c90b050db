package demo_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/cli/demo"
	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/testdata"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

func start(t *testing.T, o demo.Options) *demo.Demo {
	t.Helper()
	o.Progress = io.Discard
	d, err := demo.Start(t.Context(), o)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func play(t *testing.T, o demo.Options) *demo.Report {
	t.Helper()
	r, err := start(t, o).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTheDemonstrationHoldsEveryInvariantWithNothingConfigured(t *testing.T) {
	t.Parallel()
	r := play(t, demo.Options{Input: bytes.NewReader(testdata.Adjudications)})
	for name, verdict := range r.Invariants {
		if verdict != "ok" {
			t.Errorf("%s: %s", name, verdict)
		}
	}
	if !r.OK() || len(r.Invariants) != 13 {
		t.Errorf("%d invariants: %v", len(r.Invariants), r.Invariants)
	}
	if r.Lines != r.Submitted+r.Deduplicated+r.Rejected || r.Submitted != r.Settled+r.Refunded+r.PartiallySettled+r.DeadLettered {
		t.Errorf("it does not add up: %+v", r)
	}
	if r.Settled == 0 || r.Refunded == 0 || r.PartiallySettled == 0 || r.DeadLettered == 0 || r.Deduplicated == 0 || r.Rejected == 0 ||
		r.RetriesScheduled == 0 || r.UnknownOpen == 0 {
		t.Errorf("something is not shown: %+v", r)
	}
	if r.OpenLetters == 0 || r.OpenLetters >= r.DeadLettered {
		t.Errorf("%d of %d letters wait for a person; some were superseded", r.OpenLetters, r.DeadLettered)
	}
	if r.EarlyAttempts != 0 || r.DoubleEffects != 0 || r.Live != 0 {
		t.Errorf("%+v", r)
	}
	var out bytes.Buffer
	if err := r.Show(screen.New(&out)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"What became of", "Money", "Open dead letters", "How ", "refused as bad input", "One dead letter", "Retries", "All invariants hold."} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is not shown", part)
		}
	}
}

func TestTheReportIsOneObjectWithTheNamesPromised(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(demo.Report{})
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"submitted", "deduplicated", "rejected", "settled", "refunded", "partially_settled", "dead_lettered", "open_letters", "cancelled",
		"attempts", "retries_scheduled", "interrupted", "unknown_open", "early_attempts", "double_effects", "receipts", "chains_verified", "invariants", "elapsed_ms"} {
		if _, ok := members[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

// startForeignServers returns named servers for a demonstration.
func startForeignServers(t *testing.T) (databaseURL, redisURL string, client *redis.Client) {
	t.Helper()
	_, opt := testkit.Redis(t)
	server := opt.(asynq.RedisClientOpt)
	client = redis.NewClient(&redis.Options{Addr: server.Addr, Password: server.Password})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return testkit.Migrated(t), "redis://:" + server.Password + "@" + server.Addr, client
}

const twoLines = `{"transaction_receipt_id":"txr_1","submission_receipt_id":"s","adjudication_id":"a","tenant":"t","escrow_reference":"e","outcome":"release","amount":{"minor":5,"currency":"USD"},"held":{"minor":9,"currency":"USD"}}
{"transaction_receipt_id":"txr_2","submission_receipt_id":"s","adjudication_id":"a","tenant":"t","escrow_reference":"e","outcome":"refund","amount":{"minor":4,"currency":"USD"},"held":{"minor":9,"currency":"USD"},"simulate":"panic"}
`

func TestForeignServersAreLeftAsTheyWere(t *testing.T) {
	t.Parallel()
	databaseURL, redisURL, client := startForeignServers(t)
	ctx := context.Background()
	if err := client.Set(ctx, "somebody:else", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	d, err := demo.Start(ctx, demo.Options{Input: strings.NewReader(twoLines), DatabaseURL: databaseURL, OwnerURL: testkit.Owner(t, databaseURL), RedisURL: redisURL, Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() || r.Settled != 1 || r.Refunded != 1 {
		t.Errorf("%+v", r)
	}
	worked, err := d.Database()
	if err != nil {
		t.Fatal(err)
	}
	if as, named := userOf(t, worked), userOf(t, databaseURL); as != named || as == userOf(t, testkit.Owner(t, databaseURL)) {
		t.Errorf("it works as %s, not as %s", as, named)
	}
	if !isThere(t, databaseURL, worked) {
		t.Errorf("the demonstration has no database of its own: %s", worked)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if isThere(t, databaseURL, worked) {
		t.Errorf("the database of the demonstration is left: %s", worked)
	}
	keyspace, err := client.Info(ctx, "keyspace").Result()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(keyspace, "db0:keys=1,") || strings.Contains(keyspace, "db1") {
		t.Errorf("Redis was left as %q", keyspace)
	}
}

func userOf(t *testing.T, databaseURL string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	return u.User.Username()
}

// isThere reports whether a server has the database of a URL. Other tests have demonstrations there, too.
func isThere(t *testing.T, serverURL, databaseURL string) (found bool) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("postgres", serverURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(`SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, strings.TrimPrefix(u.Path, "/")).Scan(&found); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAFullRedisIsRefusedAndNotCleared(t *testing.T) {
	t.Parallel()
	databaseURL, redisURL, client := startForeignServers(t)
	ctx := context.Background()
	for index := range 16 {
		in := redis.NewClient(&redis.Options{Addr: client.Options().Addr, Password: client.Options().Password, DB: index})
		if err := in.Set(ctx, "somebody:else", "1", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d, err := demo.Start(ctx, demo.Options{Input: strings.NewReader(twoLines), DatabaseURL: databaseURL, OwnerURL: testkit.Owner(t, databaseURL), RedisURL: redisURL, Progress: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "no empty logical database") {
		t.Errorf("%v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	keyspace, err := client.Info(ctx, "keyspace").Result()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(keyspace, "keys=1,") != 16 {
		t.Errorf("Redis was left as %q", keyspace)
	}
}
