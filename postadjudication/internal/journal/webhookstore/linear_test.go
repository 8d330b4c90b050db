package webhookstore_test

import (
	"os"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
)

// A statement that takes ids reads in proportion to them, with the settings of its pool, before and after the server has
// statistics: see journaltest.CheckReadsInProportion.
func TestStatementsOfManyIDsReadInProportion(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	db, plans := testkit.OpenAsOwner(t, databaseURL), journaltest.OpenPlans(t, databaseURL)
	insert := func() {
		if _, err := db.Exec(`INSERT INTO recourse.webhook_positions (webhook_id, tenant, version, read_to, pending)
			SELECT gen_random_uuid(), 'tenant ' || n / 100, 1, 10, '{}' FROM generate_series(1, 4000) n`); err != nil {
			t.Fatal(err)
		}
	}
	insert()
	tried := map[string]journaltest.ArrayStatement{"saveSQL": {SQL: webhookstore.ArrayStatements["saveSQL"], Pool: journaltest.PoolOf(t, journaltest.Open(t, databaseURL).Outbox.SenderPool()), Args: func(n int) []any {
		var rows string
		if err := db.QueryRow(`SELECT json_agg(json_build_object('id', webhook_id, 'version', 1, 'read_to', 20, 'pending', pending, 'delivered', 1, 'failures', 0, 'last_failure', ''))
			FROM (SELECT * FROM recourse.webhook_positions LIMIT $1) p`, n).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return []any{rows}
	}}}
	journaltest.CheckArrayStatementsAreTried(t, os.DirFS("."), tried, nil)
	journaltest.CheckAllReadInProportion(t, db, plans, tried, 8000, insert)
}
