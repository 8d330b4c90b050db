package journal_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// arrays are arrays of the same number of elements, as SQL literals, of runs that insertRemoteRuns and
// insertSettlements make.
type arrays struct {
	tenant string

	runs, cases, subjects, ones, texts, flags, nulls, numbers, names, times, currencies string
	escrows, references                                                                 string
	queues, wanted, falses                                                              string // n runs of one queue, and one of each other
	claims, ends, openings, newOpenings                                                 []journal.Change
}

// erasingPool returns JournalPool in a transaction that may erase payloads.
func erasingPool() journaltest.Pool {
	settings := maps.Clone(pg.PlannerSettings)
	settings["recourse.erasing"] = "purged"
	return journaltest.Pool{settings}
}

// arrayStatements are the statements that are tried, by their declarations: where they are executed, and with which
// arguments.
var arrayStatements = map[string]struct {
	pool journaltest.Pool
	args func(*arrays) []any
}{
	"advanceNotificationSQL": {journaltest.AnyPool, func(a *arrays) []any { return []any{a.runs, a.ones} }},
	"runStatusesSQL":         {journaltest.AnyPool, func(a *arrays) []any { return []any{a.runs} }},
	"byRunsSQL":              {journaltest.AnyPool, func(a *arrays) []any { return []any{a.runs} }},
	"listedRunsSQL":          {journaltest.AnyPool, func(a *arrays) []any { return []any{a.runs, 1_000_000_000} }},
	"letterRowsByIDSQL":      {journaltest.AnyPool, func(a *arrays) []any { return []any{a.runs} }},
	"handlersSQL":            {journaltest.AnyPool, func(a *arrays) []any { return []any{a.runs, a.tenant} }},
	"activeRunsSQL":          {journaltest.AnyPool, func(a *arrays) []any { return []any{a.tenant, "plain", a.subjects} }},
	"lineageReplaysSQL":      {journaltest.AnyPool, func(a *arrays) []any { return []any{a.runs, a.tenant} }},
	"submittersSQL":          {journaltest.AnyPool, func(a *arrays) []any { return []any{a.tenant, a.runs} }},
	"outputsSQL":             {journaltest.AnyPool, func(a *arrays) []any { return []any{a.tenant, a.runs, 1_000_000_000} }},
	"recentReceiptsSQL":      {journaltest.AnyPool, func(a *arrays) []any { return []any{a.tenant, a.cases, a.ones, 1_000_000_000} }},
	"extendLeasesSQL":        {journaltest.AnyPool, func(a *arrays) []any { return []any{a.runs, a.names, a.texts, a.texts, 0} }},
	"countReplaysSQL":        {journaltest.AnyPool, func(a *arrays) []any { return []any{"rule", a.tenant, "now", a.runs, 3} }},
	"forkedFingerprintsSQL":  {journaltest.AnyPool, func(a *arrays) []any { return []any{a.cases} }},

	"heldLeasesSQL":      {journaltest.JournalPool, func(a *arrays) []any { return []any{a.runs, a.names, a.texts, a.texts} }},
	"startedByOthersSQL": {journaltest.ReadPool, func(a *arrays) []any { return []any{a.runs, a.tenant, "somebody"} }},
	"fetchableRunsSQL":   {journaltest.ReadPool, func(a *arrays) []any { return []any{a.runs} }},
	"jobLabelsSQL":       {journaltest.ReadPool, func(a *arrays) []any { return []any{a.tenant, a.runs} }},
	"liveHolderSQL":      {journaltest.JournalPool, func(a *arrays) []any { return []any{a.cases, "now"} }},
	"marksSQL":           {journaltest.ReadPool, func(a *arrays) []any { return []any{"", a.numbers} }},
	"overQueueCountSQL": {journaltest.ReadPool, func(a *arrays) []any {
		return []any{"ojs", "", "{}", "now", uuid.Max.String(), 100, "now", uuid.Max.String(), a.names, a.names, a.times, a.runs}
	}},
	"targetDifferencesSQL": {journaltest.ReadPool, func(a *arrays) []any { return []any{"settlement", a.subjects, a.subjects, "now"} }},
	"recordTargetsSQL":     {journaltest.ReadPool, func(a *arrays) []any { return []any{"settlement", a.subjects, a.subjects} }},
	"foldDeltasSQL":        {journaltest.JournalPool, func(a *arrays) []any { return []any{a.escrows} }},
	"ensureEscrowsSQL":     {journaltest.JournalPool, func(a *arrays) []any { return []any{a.names, a.subjects, a.currencies, a.ones} }},
	"returnsSQL":           {journaltest.ReadPool, func(a *arrays) []any { return []any{a.tenant, a.references} }},
	"insertReturnsSQL":     {journaltest.JournalPool, func(a *arrays) []any { return []any{a.tenant, uuid.Max.String(), a.subjects, a.ones, a.runs, a.ones} }},
	"upsertAnnotationsSQL": {journaltest.JournalPool, func(a *arrays) []any {
		return []any{a.runs, a.names, a.flags, a.names, a.nulls, a.nulls, a.texts, a.flags, a.nulls}
	}},
	"deleteAnnotationsSQL":  {journaltest.JournalPool, func(a *arrays) []any { return []any{a.runs} }},
	"erasePayloadsSQL":      {erasingPool(), func(a *arrays) []any { return []any{a.runs} }},
	"linkLetterHandlersSQL": {journaltest.JournalPool, func(a *arrays) []any { return []any{a.runs, a.runs, a.names} }},
	"dueRemoteSQL":          {journaltest.JournalPool, func(a *arrays) []any { return []any{a.names, a.queues, a.wanted, a.falses, "now", a.runs, 8 << 20} }},

	"wideTransitionSQL":   {journaltest.JournalPool, func(a *arrays) []any { return journal.WideTransitionArgs(a.claims) }},
	"narrowTransitionSQL": {journaltest.JournalPool, func(a *arrays) []any { return journal.NarrowTransitionArgs(a.ends) }},
	"leaseEndSQL":         {journaltest.JournalPool, func(a *arrays) []any { return journal.LeaseEndArgs(a.ends) }},
	"leaseClaimSQL":       {journaltest.JournalPool, func(a *arrays) []any { return journal.LeaseClaimArgs(a.claims) }},
	"wideOpenSQL":         {journaltest.JournalPool, func(a *arrays) []any { return journal.WideOpenArgs(a.openings) }},
	"narrowOpenSQL":       {journaltest.JournalPool, func(a *arrays) []any { return journal.NarrowOpenArgs(a.newOpenings) }},
}

// arrayExceptions take no array that is longer than a few dozen elements, or are a part of a statement that is tried.
var arrayExceptions = map[string]string{
	"OfCase":         "the subtypes of receipts that one function of this program reads",
	"caseFilterSQL":  "the states of settlements, of which there are nine",
	"ofTargetDueSQL": "the targets that a process calls, of one breaker",
	"countPausedSQL": "the targets that a process calls, of one breaker",
	"NeverLookedUp":  "the targets that a process calls",
	"Due":            "the targets that a process calls",
	"beatSQL":        "the targets that a process calls",
	"heldLeases":     "part of extendLeasesSQL and heldLeasesSQL",
	"sql":            "part of narrowTransitionSQL, leaseEndSQL and leaseClaimSQL",

	"letterRowsOverCountSQL": "part of overQueueCountSQL and of overCountSQL, which differs by one condition",
	"inScopeSQL":             "queues of the configuration that retention leaves out",
}

// A statement that takes ids reads in proportion to them, with the settings of its pool, before and after the server has
// statistics: see journaltest.CheckReadsInProportion.
func TestStatementsOfManyIDsReadInProportion(t *testing.T) {
	t.Parallel()
	databaseURL := testkit.Migrated(t)
	db, plans := testkit.OpenAsOwner(t, databaseURL), journaltest.OpenPlans(t, databaseURL)
	j := journaltest.Open(t, databaseURL)
	elements := map[int]*arrays{}
	insert := func(tenant string) {
		insertRemoteRuns(t, db, tenant)
		insertSettlements(t, db, tenant)
		for _, n := range []int{journaltest.Few, journaltest.Many} {
			elements[n] = arraysOf(t, db, j, tenant, n)
		}
	}
	insert("acme")
	tried := map[string]journaltest.ArrayStatement{}
	for name, s := range arrayStatements {
		tried[name] = journaltest.ArrayStatement{SQL: journal.ArrayStatements[name], Pool: s.pool, Args: func(n int) []any { return s.args(elements[n]) }}
	}
	journaltest.CheckArrayStatementsAreTried(t, os.DirFS("."), tried, arrayExceptions)
	journaltest.CheckAllReadInProportion(t, db, plans, tried, 48000, func() { insert("bank") })
}

// insertSettlements makes 4,000 cases of settlements of a tenant, each with a waiting run and an escrow of its own that has
// three deltas.
func insertSettlements(t *testing.T, db *sql.DB, tenant string) {
	t.Helper()
	for _, query := range []string{
		`INSERT INTO recourse.escrows (tenant, reference, currency, held, committed) SELECT 'acme', 'escrow ' || n, 'EUR', 1000000, 100 FROM generate_series(0, 3999) n ORDER BY n`,
		`INSERT INTO recourse.cases (id, tenant, kind, subject, escrow_id, content, asked, reserved, run_id, last_seq, last_link)
			SELECT gen_random_uuid(), 'acme', 'settlement', e.reference, e.id, sha256('x'), 100, 100, gen_random_uuid(), 1, sha256('x') FROM recourse.escrows e WHERE e.tenant = 'acme'`,
		`INSERT INTO recourse.runs (id, case_id, tenant, family, retry_key, queue, target, policy, payload, state, live, active, last_transition, due_at, remote)
			SELECT c.run_id, c.id, 'acme', 'settlement', c.subject, 'queue', 'target', r.policy, '{}', 'pending', true, true, gen_random_uuid(), now(), true
			FROM recourse.cases c, (SELECT policy FROM recourse.runs LIMIT 1) r WHERE c.escrow_id IS NOT NULL AND c.tenant = 'acme'`,
		`INSERT INTO recourse.escrow_deltas (escrow_id, case_id, seq, delta) SELECT c.escrow_id, c.id, d, 1 FROM recourse.cases c, generate_series(12, 14) d WHERE c.escrow_id IS NOT NULL AND c.tenant = 'acme'`,
		`INSERT INTO recourse.returns (tenant, reference, case_id, seq, run_id, amount) SELECT 'acme', 'return of ' || subject, id, 1, run_id, 1 FROM recourse.cases WHERE escrow_id IS NOT NULL AND tenant = 'acme'`,
		`INSERT INTO recourse.unique_jobs (tenant, fingerprint, case_id) SELECT tenant, sha256(('f' || n / 2)::bytea), kase FROM recourse.made`,
		`INSERT INTO recourse.leases (run_id, tenant, worker, attempt, at, length_ms, limit_ms) SELECT run, tenant, '', 1, now(), 1, 1 FROM recourse.made`,
		`INSERT INTO recourse.event_log (last, tenant, case_ids, seqs) SELECT (SELECT coalesce(max(last), 0) FROM recourse.event_log) + 5 * (n + 1), 'acme', array_fill(kase, ARRAY[5]), ARRAY[1, 2, 3, 4, 5] FROM recourse.made WHERE n < 4000 ORDER BY n`,
	} {
		if _, err := db.Exec(strings.ReplaceAll(query, "'acme'", pq.QuoteLiteral(tenant))); err != nil {
			t.Fatalf("%v: %s", err, query)
		}
	}
}

// arraysOf returns arrays of the first n runs that were inserted last, and of the tenant's settlements.
func arraysOf(t *testing.T, db *sql.DB, j *journal.Journal, tenant string, n int) *arrays {
	t.Helper()
	repeated := func(of string) string { return "{" + strings.TrimSuffix(strings.Repeat(of+",", n), ",") + "}" }
	a := &arrays{tenant: tenant, ones: repeated("1"), texts: repeated(`""`), flags: repeated("true"), nulls: repeated("NULL"), names: repeated(tenant), times: repeated("now"), currencies: repeated("EUR"), falses: repeated("false")}
	var settled pq.StringArray
	for text, into := range map[string][]any{
		`SELECT array_agg(run)::text, array_agg(kase)::text, array_agg('ojs:' || n)::text, array_agg(5 * n + 1)::text FROM recourse.made WHERE n < $1`:                                                                                                                             {&a.runs, &a.cases, &a.subjects, &a.numbers},
		`SELECT array_agg(escrow_id)::text, array_agg('return of ' || subject)::text, array_agg(run_id) FROM (SELECT escrow_id, subject, run_id FROM recourse.cases WHERE escrow_id IS NOT NULL AND tenant = ` + pq.QuoteLiteral(tenant) + ` ORDER BY escrow_id LIMIT $1) settled`: {&a.escrows, &a.references, &settled},
	} {
		if err := db.QueryRow(text, n).Scan(into...); err != nil {
			t.Fatal(err)
		}
	}
	_, others, _ := strings.Cut(a.subjects, ",")
	a.queues, a.wanted = "{queue,"+others, fmt.Sprintf("{%d%s", n, a.ones[len("{1"):])
	ids := make([]background.RunID, n)
	for i := range ids {
		ids[i] = background.RunID(uuid.MustParse(settled[i]))
	}
	seen, err := j.Letters.ListedRuns(context.Background(), ids, 1<<40)
	if err != nil || len(seen) != n {
		t.Fatalf("%d runs, %v", len(seen), err)
	}
	for i := range seen {
		a.claims = append(a.claims, changeTo(seen[i].Snapshot, background.Running))
		a.ends = append(a.ends, changeTo(seen[i].Snapshot, background.Cancelled))
		a.openings = append(a.openings, openingIn(tenant, fmt.Sprintf("escrow %d", i)))
		a.newOpenings = append(a.newOpenings, openingIn(tenant, fmt.Sprintf("new escrow %d", i)))
	}
	return a
}

// changeTo returns a change of a run's state. A claim reserves more, and an end frees what was reserved.
func changeTo(before journal.Snapshot, state background.State) journal.Change {
	after, subtype := before, receipts.Cancelled
	if after.Run.State, after.Run.LastTransition = state, uuid.New(); state == background.Running {
		subtype, after.Run.Token, after.Run.Session, after.Run.Attempt = receipts.AttemptStarted, uuid.New(), journaltest.Session, 1
		after.Case.State.Reserved += 10
	} else {
		after.Case.State.Reserved = 0
	}
	return journal.Change{Transition: after.Run.LastTransition, Before: &before, After: &after, Reserve: state == background.Running,
		Drafts: []receipts.Draft{{Run: after.Run.ID, Subtype: subtype, Actor: "test", At: time.Now().UTC(), Payload: receipts.Payload{Attempt: after.Run.Attempt}}}}
}

// openingIn returns the change that opens a case of a settlement.
func openingIn(tenant, escrow string) journal.Change {
	run := journaltest.PlainRun(receipts.CaseID(uuid.New()), tenant)
	change := journaltest.Opening(run, journaltest.Submitted(run))
	change.OpeningEscrow = journal.OpeningEscrow{Reference: escrow, Currency: "EUR", Held: 1_000_000}
	change.After.Case.Kind, change.After.Case.State.Asked, change.After.Case.State.Reserved = journal.KindSettlement, 10, 10
	return change
}
