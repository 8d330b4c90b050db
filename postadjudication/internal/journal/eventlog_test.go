package journal_test

import (
	"context"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
)

// A page of the event log reads only its own receipts, not all of the tenant's, with and
// without statistics.
func TestAnEventPageReadsOnlyItsReceipts(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	db := testkit.OpenAsOwner(t, url)
	const each = 5
	for _, query := range []string{
		`CREATE TABLE recourse.made AS SELECT n, gen_random_uuid() AS id FROM generate_series(1, 4000) n`,
		`INSERT INTO recourse.receipts (case_id, seq, run_id, tenant, source, subtype, actor, at, body, link)
			SELECT id, s, NULL, 'acme', 'operations', 'breaker-opened', 'test', now(), '{}', sha256('x') FROM recourse.made, generate_series(1, 5) s`,
		`INSERT INTO recourse.event_log (last, tenant, case_ids, seqs) SELECT n * 5, 'acme', array_fill(id, ARRAY[5]), ARRAY[1, 2, 3, 4, 5] FROM recourse.made`,
	} {
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	j := journaltest.Open(t, url)
	for _, known := range []string{"nothing", "all"} {
		if known == "all" {
			if _, err := db.Exec(`ANALYZE recourse.receipts, recourse.event_log`); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := db.Query(`EXPLAIN `+journal.EventPageSQL, "acme", int64(7), 1000)
		if err != nil {
			t.Fatal(err)
		}
		var plan strings.Builder
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan.WriteString(line + "\n")
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if text := plan.String(); strings.Contains(text, "Seq Scan on receipts") || strings.Contains(text, "Hash Join") || strings.Contains(text, "Merge Join") {
			t.Errorf("with statistics of %s:\n%s", known, text)
		}
		page, err := j.Receipts.From(context.Background(), "acme", 7, 1000)
		if err != nil || len(page) != 1000 {
			t.Fatalf("%d receipts, %v", len(page), err)
		}
		for i, r := range page {
			if want := int64(7 + i); r.Number != want || r.Seq != (want-1)%each+1 {
				t.Fatalf("receipt %d is number %d, %d of its case", i, r.Number, r.Seq)
			}
		}
	}
}

// Deaths are read in the order of events, without the other events between them.
func TestDeathsAreReadInTheOrderOfEvents(t *testing.T) {
	t.Parallel()
	j := journaltest.Open(t, testkit.Migrated(t))
	var want []receipts.RunID
	for range 2 {
		run := applyUntilRecorded(t, j, journaltest.Transition(receipts.AttemptStarted, journaltest.Submit(t, j).Run))
		applyUntilRecorded(t, j, journaltest.Transition(receipts.DeadLettered, run))
		want = append(want, run.ID)
		if err := j.Outbox.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	found, next, err := j.Receipts.Deaths(t.Context(), 0, 100)
	if err != nil || len(found) != len(want) || next != 6 {
		t.Fatalf("%d deaths until %d, %v", len(found), next, err)
	}
	for i, d := range found {
		if d.Run != want[i] || d.Subtype != receipts.DeadLettered {
			t.Errorf("death %d is the %s of %s", i, d.Subtype, d.Run)
		}
	}
	if again, next, err := j.Receipts.Deaths(t.Context(), next, 100); err != nil || len(again) > 0 || next != 6 {
		t.Errorf("%d more until %d, %v", len(again), next, err)
	}
}
