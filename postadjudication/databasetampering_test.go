package postadjudication_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/receipts"
)

// tamperedDatabase is a database with a varied trail, and heads noted before the newest case
// existed and after.
type tamperedDatabase struct {
	*rig.Rig
	cases                       map[string]receipts.CaseID
	runs                        map[string]string
	executedPlan, unstartedPlan bulk.Plan
	olderHeads, allHeads        receipts.Heads
}

const (
	schemaKept   = "kept"
	schemaBackup = "backup"
)

func newTamperedDatabase(t *testing.T) *tamperedDatabase {
	t.Helper()
	r := rig.New(t, rig.WithoutRuleLoop, withWebhooks(t)).StartWorkers()
	s := &tamperedDatabase{Rig: r, cases: map[string]receipts.CaseID{}, runs: map[string]string{}}
	ctx := context.Background()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	note := func(name string, run postadjudication.Submitted) {
		st, err := r.Status(ctx, "acme", run.Run)
		must(nil, err)
		s.cases[name], s.runs[name] = st.Case, run.Run.String()
	}
	yes := true
	note("settled", r.MustSubmit(rig.Release(1)))
	note("returned", r.MustSubmit(rig.Release(10)))
	r.WaitNoneLive()
	came, err := r.As("acme", "user:ada").Bulk.PlanReturns(ctx, bulk.ReturnsRequest{Reason: "account closed", Returns: []bulk.ReturnedPayment{{Transaction: "txr_10", Reference: "R-1", Amount: rig.Euros(400)}}})
	must(came, err)
	r.RunPlan(*came.Plan)
	held := r.DeadLetter(2, rig.Refuses)
	note("held", held)
	must(r.As("acme", "user:ada").DeadLetters.Mark(ctx, held.Run, deadletter.Mark{Reason: "look first", ManualReviewRequired: &yes}))
	must(r.As("acme", "user:ada").DeadLetters.Hold(ctx, held.Run, "in court"))
	must(r.As("acme", "user:ada").DeadLetters.Mark(ctx, held.Run, deadletter.Mark{Reason: "looked", ReprocessEligible: &yes}))
	note("letter", r.DeadLetter(3, rig.Refuses))
	forked := r.DeadLetter(4, rig.Refuses)
	note("forked", forked)
	s.executedPlan = r.RunPlan(r.MustPlan(bulk.Request{Reason: "mended", Action: bulk.Fork, Filter: deadletter.Filter{Transaction: "txr_4"}}))
	s.unstartedPlan = r.MustPlan(bulk.Request{Reason: "perhaps", Action: bulk.Hold, Filter: deadletter.Filter{Transaction: "txr_3"}})
	must(r.As("acme", "user:ada").Breakers.Open(ctx, escrow.DefaultTarget, "their bank is down"))
	must(r.As("acme", "user:ada").Breakers.Release(ctx, escrow.DefaultTarget, "it is up"))
	must(r.As("acme", "user:ada").Policies.Set(ctx, policyChange(5)))
	must(r.As("acme", "user:ada").Policies.Set(ctx, policyChange(6)))
	r.MustSetRule(rig.ReplayRule(1))
	rig.MustKey(r, "acme", postadjudication.NewKey{Principal: "user:ada", Roles: []access.Role{access.Auditor}, Reason: "test"})
	r.OnePerson("nobody else is there")
	must(r.As("acme", "user:ada").Webhooks.Pause(ctx, mustWebhook(r).ID, "they move"))
	r.WaitNoneLive()
	s.drain()
	s.olderHeads = maps.Clone(r.MustAudit().Heads)
	s.backup(schemaBackup)
	newest := r.DeadLetter(9, rig.Refuses)
	must(r.As("acme", "user:ada").DeadLetters.Mark(ctx, newest.Run, deadletter.Mark{Reason: "look first", ManualReviewRequired: &yes}))
	note("newest", newest)
	s.drain()
	r.StopWorkers()
	s.allHeads = maps.Clone(r.MustAudit().Heads)
	s.backup(schemaKept)
	return s
}

// drain numbers all receipts, so that none waits.
func (s *tamperedDatabase) drain() {
	s.T.Helper()
	ctx := context.Background()
	if err := s.DrainEvents(ctx); err != nil {
		s.T.Fatal(err)
	}
	if err := s.Index().CatchUp(ctx); err != nil {
		s.T.Fatal(err)
	}
	s.WaitProjected()
}

func (s *tamperedDatabase) tables() (names []string) {
	s.T.Helper()
	rows, err := s.DB.Query(`SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'recourse' AND c.relkind = 'r' AND relname NOT LIKE 'goose%' ORDER BY 1`)
	if err != nil {
		s.T.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			s.T.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		s.T.Fatal(err)
	}
	return names
}

func (s *tamperedDatabase) backup(as string) {
	s.T.Helper()
	statements := []string{`CREATE SCHEMA ` + as}
	for _, name := range s.tables() {
		statements = append(statements, fmt.Sprintf(`CREATE TABLE %s.%s AS TABLE recourse.%s`, as, name, name))
	}
	testkit.Tamper(s.T, s.DB, statements...)
}

// restoreSQL returns the statements that restore everything.
func (s *tamperedDatabase) restoreSQL(as string) (out []string) {
	for _, name := range s.tables() {
		columns := storedColumns(s.T, s.DB, name)
		out = append(out, `DELETE FROM recourse.`+name, fmt.Sprintf(`INSERT INTO recourse.%s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s.%s`, name, columns, columns, as, name))
	}
	return out
}

// storedColumns lists the columns of a table that are written, with commas: all but those that the server
// computes.
func storedColumns(t testing.TB, db *sql.DB, table string) (out string) {
	t.Helper()
	err := db.QueryRow(`SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = ('recourse.' || $1)::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`, table).Scan(&out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rewriteTrailSQL returns the statements that rewrite the trail of a case as changed by change,
// with new SHA-256 links and head.
func (s *tamperedDatabase) rewriteTrailSQL(name string, change func([]receipts.Draft) []receipts.Draft) []string {
	s.T.Helper()
	caseID := s.cases[name]
	trail, err := s.Receipts(context.Background(), "acme", caseID, 0, 1000)
	if err != nil {
		s.T.Fatal(err)
	}
	var drafts []receipts.Draft
	for _, r := range trail {
		e, err := receipts.Parse(r.Body)
		if err != nil {
			s.T.Fatal(err)
		}
		drafts = append(drafts, e.Draft)
	}
	chained, head, err := receipts.Chain(caseID, "acme", receipts.Genesis(caseID), change(drafts)...)
	if err != nil {
		s.T.Fatal(err)
	}
	out := []string{`DELETE FROM recourse.receipts WHERE case_id = '` + caseID.String() + `'`}
	for _, r := range chained {
		run := "NULL"
		if !r.Run.IsZero() {
			run = pq.QuoteLiteral(r.Run.String())
		}
		out = append(out, fmt.Sprintf(`INSERT INTO recourse.receipts (case_id, seq, run_id, tenant, source, subtype, actor, at, body, link) VALUES ('%s', %d, %s, 'acme', '%s', '%s', %s, '%s', %s, '\x%s')`,
			caseID, r.Seq, run, r.Source, r.Subtype, pq.QuoteLiteral(r.Actor), r.At.Format(time.RFC3339Nano), pq.QuoteLiteral(string(r.Body)), hex.EncodeToString(r.Link[:])))
	}
	return append(out, fmt.Sprintf(`UPDATE recourse.cases SET last_seq = %d, last_link = '\x%s' WHERE id = '%s'`, head.Seq, hex.EncodeToString(head.Link[:]), caseID))
}

// changeEach changes the receipts of a subtype.
func changeEach(subtype receipts.Subtype, change func(*receipts.Draft)) func([]receipts.Draft) []receipts.Draft {
	return func(ds []receipts.Draft) []receipts.Draft {
		for i := range ds {
			if subtype == "" || ds[i].Subtype == subtype {
				change(&ds[i])
			}
		}
		return ds
	}
}

// recountSQL corrects the counts of the list, as its triggers do when they are on.
const recountSQL = `DELETE FROM recourse.facet_group_days; INSERT INTO recourse.facet_group_days
	SELECT facet_group, (dead_at AT TIME ZONE 'UTC')::date - date '1970-01-01', count(*), sum(at_risk), sum(attempts) FROM recourse.letters GROUP BY 1, 2;
	UPDATE recourse.facet_groups s SET letters = d.n, at_risk = d.risk, attempts = d.tries
	FROM (SELECT s.id, count(l.run_id) AS n, coalesce(sum(l.at_risk), 0) AS risk, coalesce(sum(l.attempts), 0) AS tries FROM recourse.facet_groups s LEFT JOIN recourse.letters l ON l.facet_group = s.id GROUP BY s.id) d WHERE s.id = d.id`

const resetReadersSQL = `WITH last AS (SELECT max(last) FROM recourse.event_log), webhooks AS (UPDATE recourse.webhook_positions SET read_to = least(read_to, (TABLE last)))
	UPDATE recourse.projected SET last = (TABLE last)`

// How tampering is detected: by the audit alone, by heads noted before the newest case existed,
// or only by the newest heads.
const (
	detectedByAudit    = "verify"
	detectedByHeads    = "heads"
	detectedByNewHeads = "newer heads"
)

type tampering struct {
	what       string
	statements []string
	detectedBy string
	invariant  string // invariant
	word       string // part of the break's text
}

// deleteCaseSQL returns the statements that remove a case, except for its positions in the
// order of events.
func (s *tamperedDatabase) deleteCaseSQL(name string) []string {
	inCase := ` IN (SELECT id FROM recourse.runs WHERE case_id = '` + s.cases[name].String() + `')`
	of := ` WHERE case_id = '` + s.cases[name].String() + `'`
	return []string{`DELETE FROM recourse.letters WHERE run_id` + inCase, `DELETE FROM recourse.annotations WHERE run_id` + inCase, `DELETE FROM recourse.receipts` + of, `DELETE FROM recourse.operations` + of,
		`DELETE FROM recourse.escrow_deltas` + of, `DELETE FROM recourse.runs` + of, `DELETE FROM recourse.escrows WHERE id = (SELECT escrow_id FROM recourse.cases WHERE id = '` + s.cases[name].String() + `')`,
		`DELETE FROM recourse.cases WHERE id = '` + s.cases[name].String() + `'`, recountSQL}
}

// tamperings lists what an owner of the tables can do. Those that only a saved head detects are
// marked.
func (s *tamperedDatabase) tamperings() []tampering {
	of := func(name string) string { return ` WHERE case_id = '` + s.cases[name].String() + `'` }
	id := func(name string) string { return ` WHERE id = '` + s.runs[name] + `'` }
	run := func(name string) string { return ` WHERE run_id = '` + s.runs[name] + `'` }
	events := func(name string) string {
		return `DELETE FROM recourse.event_log WHERE '` + s.cases[name].String() + `' = ANY(case_ids)`
	}
	last := func(name string) string {
		return of(name) + ` AND seq = (SELECT last_seq FROM recourse.cases WHERE id = '` + s.cases[name].String() + `')`
	}
	cut := func(ds []receipts.Draft) []receipts.Draft { return ds[:len(ds)-1] }
	mark := func(name string) string { // undoes the marks of the case's last receipt
		return map[string]string{"held": `UPDATE recourse.annotations SET reprocess_eligible = NULL, mark_reason = 'look first'` + run("held"), "newest": `DELETE FROM recourse.annotations` + run("newest")}[name]
	}
	appended := func(d receipts.Draft) func([]receipts.Draft) []receipts.Draft {
		return func(ds []receipts.Draft) []receipts.Draft { return append(ds, d) }
	}
	held, err := receipts.ParseRunID(s.runs["held"])
	if err != nil {
		s.T.Fatal(err)
	}
	settled, err := receipts.ParseRunID(s.runs["settled"])
	if err != nil {
		s.T.Fatal(err)
	}
	at := s.Now()
	plan := func(b bulk.Plan, tables ...string) (out []string) {
		for _, t := range tables {
			out = append(out, fmt.Sprintf(`DELETE FROM recourse.%s WHERE %s = '%s'`, t, map[bool]string{true: "id", false: "bulk_id"}[t == "bulks"], b.ID))
		}
		return out
	}
	all := []string{"bulks", "bulk_items", "bulk_counts"}
	unreadable := func(subtype receipts.Subtype) []string {
		return []string{fmt.Sprintf(`UPDATE recourse.receipts SET body = '{"%s' WHERE subtype = '%s'`, s.executedPlan.ID, subtype)}
	}
	return []tampering{
		{"a hold can't be read", unreadable(receipts.HoldPlaced), detectedByAudit, audit.InvariantFold, "can't be read"},
		{"a mark can't be read", unreadable(receipts.Marked), detectedByAudit, audit.InvariantFold, "can't be read"},
		{"an access key's creation can't be read", unreadable(receipts.KeyCreated), detectedByAudit, audit.InvariantFold, "can't be read"},
		{"a number of people can't be read", unreadable(receipts.PeopleChanged), detectedByAudit, audit.InvariantFold, "can't be read"},
		{"a policy can't be read", unreadable(receipts.PolicyChanged), detectedByAudit, audit.InvariantFold, "can't be read"},
		// No receipt of the plan stays readable: else its check may find that one first, and not meet the others.
		{"what a plan did can't be read", []string{fmt.Sprintf(`UPDATE recourse.receipts SET body = '{"%s' WHERE body LIKE '%%%[1]s%%'`, s.executedPlan.ID)}, detectedByAudit, audit.InvariantFold, "could not be made"},
		{"1a a receipt's body is edited", []string{`UPDATE recourse.receipts SET body = replace(body, '"moved":1000', '"moved":9000')` + of("settled") + ` AND subtype = 'attempt-succeeded'`}, detectedByAudit, audit.InvariantChains, "link does not follow"},
		{"1a' a receipt's column is edited", []string{`UPDATE recourse.receipts SET at = at - interval '1 hour'` + of("settled") + ` AND seq = 2`}, detectedByAudit, audit.InvariantChains, "column at differs"},
		{"1b a body is edited and relinked", s.rewriteTrailSQL("settled", changeEach(receipts.AttemptSucceeded, func(d *receipts.Draft) { d.Payload.Reference = "pay_other" })), detectedByHeads, audit.InvariantHeads, "differs from the saved head"},
		{"1c an actor is edited and relinked", s.rewriteTrailSQL("held", changeEach(receipts.HoldPlaced, func(d *receipts.Draft) { d.Actor = "user:bob" })), detectedByHeads, audit.InvariantHeads, "differs from the saved head"},
		{"2 a receipt is deleted", []string{`DELETE FROM recourse.receipts` + of("settled") + ` AND seq = 2`}, detectedByAudit, audit.InvariantChains, "sequence 3 stands in its place"},
		{"2' a receipt is deleted, the others renumbered and relinked", append(s.rewriteTrailSQL("held", func(ds []receipts.Draft) []receipts.Draft { return slices.Delete(ds, len(ds)-2, len(ds)-1) }),
			`UPDATE recourse.annotations SET held = false, hold_reason = ''`+run("held")), detectedByAudit, audit.InvariantOrder, "which is not there"},
		{"3a a tail is cut", []string{`DELETE FROM recourse.receipts` + last("held")}, detectedByAudit, audit.InvariantChains, "the trail ends at"},
		{"3b a tail is cut, and its case set back", append(s.rewriteTrailSQL("held", cut), mark("held")), detectedByAudit, audit.InvariantOrder, "which is not there"},
		{"3c the newest receipt is cut with its place, and its case set back", append(s.rewriteTrailSQL("newest", cut), mark("newest"), `DELETE FROM recourse.event_log WHERE last = (SELECT max(last) FROM recourse.event_log)`, resetReadersSQL), detectedByNewHeads, audit.InvariantHeads, "the saved head is at"},
		{"4c the newest case is removed whole, with its places", append(s.deleteCaseSQL("newest"), events("newest"), resetReadersSQL), detectedByNewHeads, audit.InvariantHeads, "the trail ends at 0"},
		{"4a a case is removed whole, its places are left", s.deleteCaseSQL("settled"), detectedByAudit, audit.InvariantOrder, "which is not there"},
		{"4a' a case is removed whole, with its places", append(s.deleteCaseSQL("settled"), events("settled")), detectedByAudit, audit.InvariantOrder, "missing in the order of events"},
		{"5a a run's state is edited", []string{`UPDATE recourse.runs SET state = 'cancelled'` + id("settled")}, detectedByAudit, audit.InvariantFold, "stored state cancelled, the receipts say succeeded"},
		{"5b a letter is closed", []string{`UPDATE recourse.runs SET letter = 'purged', active = false` + id("letter")}, detectedByAudit, audit.InvariantFold, "stored letter purged, the receipts say open"},
		{"5c a letter is taken off the list", []string{`DELETE FROM recourse.letters` + run("letter"), recountSQL}, detectedByAudit, audit.InvariantLetters, "is not in the list of letters"},
		{"6a what an escrow holds is edited", []string{`UPDATE recourse.escrows SET held = held * 10 WHERE reference = 'esc_1'`}, detectedByAudit, audit.InvariantFold, "stored sum held"},
		{"6b what an escrow has committed is edited", []string{`UPDATE recourse.escrows SET committed = 1 WHERE reference = 'esc_1'`}, detectedByAudit, audit.InvariantEscrows, "committed 1"},
		{"6d an escrow is said to be breached", []string{`UPDATE recourse.escrows SET breached = 500 WHERE reference = 'esc_1'`}, detectedByAudit, audit.InvariantEscrows, "stored as breached by 500, the receipts say that 0 was paid"},
		{"6e a breach is appended and relinked", s.rewriteTrailSQL("settled", appended(receipts.Draft{Run: settled, Subtype: receipts.ConservationBreach, Actor: "worker:w", At: at, Payload: receipts.Payload{Excess: 500}})),
			detectedByAudit, audit.InvariantFold, "the receipt before it is of no such payment"},
		{"6f what came back of a case is edited", []string{`UPDATE recourse.cases SET returned = 1 WHERE subject = 'txr_10'`}, detectedByAudit, audit.InvariantFold, "stored returned 1, the receipts say 400"},
		{"6g a return is removed", []string{`DELETE FROM recourse.returns`}, detectedByAudit, audit.InvariantFold, "400 came back, and the returns that are recorded add up to 0"},
		{"6h the reference of a return is edited", []string{`UPDATE recourse.returns SET reference = 'R-2'`}, detectedByAudit, audit.InvariantFold, "a return of 400 with reference R-2 is recorded, and no receipt says so"},
		{"6i a return is appended and relinked", s.rewriteTrailSQL("settled", appended(receipts.Draft{Run: settled, Subtype: receipts.Returned, Actor: "user:bob", At: at, Payload: receipts.Payload{Returned: 500, Reference: "R-3", Outcome: "release"}})),
			detectedByAudit, audit.InvariantFold, "stored returned 0, the receipts say 500"},
		{"6c what a case has released is edited", []string{`UPDATE recourse.cases SET released = 1 WHERE subject = 'txr_1'`}, detectedByAudit, audit.InvariantFold, "stored released 1, the receipts say 1000"},
		{"a key is said to be revoked at another time", []string{`UPDATE recourse.keys SET created_at = created_at - interval '1 day'`}, detectedByAudit, audit.InvariantFold, "stored time of creation"},
		{"a number of people has another reason", []string{`UPDATE recourse.people SET reason = 'framed'`}, detectedByAudit, audit.InvariantFold, "stored reason framed"},
		{"a policy is said to be of another family", []string{`UPDATE recourse.policies SET family = 'chores'`}, detectedByAudit, audit.InvariantFold, "stored family chores"},
		{"a hold has another reason", []string{`UPDATE recourse.annotations SET hold_reason = 'framed'` + run("held")}, detectedByAudit, audit.InvariantFold, "stored reason of the hold framed"},
		{"a handler of a tenant with nothing else is added", []string{`INSERT INTO recourse.handlers (letter, run, tenant) VALUES (gen_random_uuid(), gen_random_uuid(), 'stranger')`}, detectedByAudit, audit.InvariantLetters, "do not refer to each other"},
		{"7 a receipt of 2020 is appended and relinked", s.rewriteTrailSQL("settled", appended(receipts.Draft{Subtype: receipts.Refused, Actor: "user:bob", At: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), Payload: receipts.Payload{AskedFor: "fork", RefusedBy: "role_missing"}})),
			detectedByAudit, audit.InvariantOrder, "has no place"},
		{"7b all times of a case are moved back and relinked", append(s.rewriteTrailSQL("settled", changeEach("", func(d *receipts.Draft) { d.At = d.At.Add(-10 * day) })),
			`UPDATE recourse.cases SET first_sent_at = first_sent_at - interval '10 days' WHERE subject = 'txr_1'`), detectedByHeads, audit.InvariantHeads, "differs from the saved head"},
		{"7c a second hold is appended and relinked", s.rewriteTrailSQL("held", appended(receipts.Draft{Run: held, Subtype: receipts.HoldPlaced, Actor: "user:bob", At: at, Payload: receipts.Payload{Reason: "in court"}})), detectedByAudit, audit.InvariantOrder, "has no place"},
		{"8a the last places are removed", []string{`DELETE FROM recourse.event_log WHERE last = (SELECT max(last) FROM recourse.event_log)`, resetReadersSQL}, detectedByAudit, audit.InvariantOrder, "has no place"},
		{"8b places are spliced", []string{events("settled")}, detectedByAudit, audit.InvariantOrder, "missing in the order of events"},
		{"9 the whole database is from an older backup", s.restoreSQL(schemaBackup), detectedByNewHeads, audit.InvariantHeads, "the saved head is at"},
		{"12 a plan that ran is removed", plan(s.executedPlan, all...), detectedByAudit, audit.InvariantFold, s.executedPlan.ID.String()},
		{"12' a plan that never ran is removed", plan(s.unstartedPlan, all...), detectedByAudit, audit.InvariantFold, s.unstartedPlan.ID.String()},
		{"12'' a circuit breaker is removed", []string{`DELETE FROM recourse.circuit_breakers WHERE tenant = 'acme'`}, detectedByAudit, audit.InvariantFold, "breaker:settlement:"},
		{"13, 14 a request is edited", []string{`UPDATE recourse.operations SET request = convert_to(replace(convert_from(request, 'UTF8'), '1000', '9000'), 'UTF8')` + of("settled")}, detectedByAudit, audit.InvariantFold, "digest of the request"},
		{"16 the error of a run is edited", []string{`UPDATE recourse.runs SET error_text = 'framed'` + id("letter")}, detectedByAudit, audit.InvariantFold, "stored failure"},
		{"17 a hold is taken away", []string{`DELETE FROM recourse.annotations` + run("held")}, detectedByAudit, audit.InvariantFold, "stored held false"},
		{"the count of a day of letters is edited", []string{`UPDATE recourse.facet_group_days SET letters = letters + 1`}, detectedByAudit, audit.InvariantLetters, "that died on"},
		{"the count of a day of letters is removed", []string{`DELETE FROM recourse.facet_group_days`}, detectedByAudit, audit.InvariantLetters, "that died on"},
		{"18 the amount of a listed letter is edited", []string{`UPDATE recourse.letters SET amount = 1` + run("letter")}, detectedByAudit, audit.InvariantLetters, "with other columns"},
		{"a circuit breaker is moved", []string{`UPDATE recourse.circuit_breakers SET state = 'open', by_hand = true WHERE tenant = 'acme'`}, detectedByAudit, audit.InvariantFold, "the circuit breaker of " + escrow.DefaultTarget + " for acme: stored state open"},
		{"another is said to have moved a circuit breaker", []string{`UPDATE recourse.circuit_breakers SET actor = 'user:bob' WHERE tenant = 'acme'`}, detectedByAudit, audit.InvariantFold, "stored actor user:bob"},
		{"a policy is set back to the version before", []string{`UPDATE recourse.policies SET version = 1, policy = replace(policy, ':6', ':5')`}, detectedByAudit, audit.InvariantFold, "is at version 1, its last receipt is 2"},
		{"another is said to have set a policy", []string{`UPDATE recourse.policies SET actor = 'user:bob'`}, detectedByAudit, audit.InvariantFold, "stored actor user:bob"},
		{"a policy is said to be set for another reason", []string{`UPDATE recourse.policies SET reason = 'framed'`}, detectedByAudit, audit.InvariantFold, "stored reason framed"},
		{"a policy is said to be set at another time", []string{`UPDATE recourse.policies SET at = at - interval '1 day'`}, detectedByAudit, audit.InvariantFold, "stored time"},
		{"a policy is removed", []string{`DELETE FROM recourse.policies`}, detectedByAudit, audit.InvariantFold, "policy:settlement"},
		{"a rule is edited", []string{`UPDATE recourse.rules SET definition = replace(definition, '"max_replays":1', '"max_replays":9')`}, detectedByAudit, audit.InvariantFold, "stored definition"},
		{"a rule is added at version 0", []string{`INSERT INTO recourse.rules (tenant, name, version, enabled, deleted, definition, actor, reason, at) VALUES ('acme', 'forged', 0, true, false, '{}', 'user:bob', 'x', now())`}, detectedByAudit, audit.InvariantFold, "forged"},
		{"a rule of a tenant with nothing else is added", []string{`INSERT INTO recourse.rules (tenant, name, version, enabled, deleted, definition, actor, reason, at) VALUES ('stranger', 'forged', 0, true, false, '{}', 'user:bob', 'x', now())`}, detectedByAudit, audit.InvariantFold, "rule forged of stranger was made, and no receipt says so"},
		{"a plan of a tenant with nothing else is added", []string{`INSERT INTO recourse.bulks OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(b, '{"id": "00000000-0000-7000-8000-000000000001", "number": 99, "tenant": "stranger"}')).* FROM recourse.bulks b WHERE b.id = '` + s.unstartedPlan.ID.String() + `'`},
			detectedByAudit, audit.InvariantFold, "of stranger was made, and no receipt says so"},
		{"a circuit breaker over all tenants is added", []string{`INSERT INTO recourse.circuit_breakers (tenant, family, target, case_id, state, by_hand, actor, cause, reason, at, version)
			VALUES ('', 'settlement', 'forged', gen_random_uuid(), 'open', true, 'user:bob', '', '', now(), 1)`}, detectedByAudit, audit.InvariantFold, "the circuit breaker of forged for all tenants was changed, and no receipt says so"},
		{"the time of a death is moved, in the list too", []string{`UPDATE recourse.runs SET dead_at = dead_at - interval '100 days'` + id("letter"), `UPDATE recourse.letters SET dead_at = dead_at - interval '100 days'` + run("letter"), recountSQL},
			detectedByAudit, audit.InvariantFold, "stored time of death"},
		{"a settlement is said to be a plain task", []string{`UPDATE recourse.cases SET kind = 'plain', escrow_id = NULL WHERE subject = 'txr_1'`}, detectedByAudit, audit.InvariantFold, "stored kind plain"},
		{"a rule is removed", []string{`DELETE FROM recourse.rules`}, detectedByAudit, audit.InvariantFold, "is in the receipts, but not stored"},
		{"a rule is said to have replayed a job", []string{`INSERT INTO recourse.rule_replays (root, rule, tenant, replays, last_at) VALUES ('` + s.runs["letter"] + `', 'r', 'acme', 1, now())`}, detectedByAudit, audit.InvariantFold, "is counted to have replayed"},
		{"a webhook is sent elsewhere", []string{`UPDATE recourse.webhooks SET definition = replace(definition, 'hooks', 'mallory')`}, detectedByAudit, audit.InvariantFold, "stored definition"},
		{"a webhook is resumed", []string{`UPDATE recourse.webhooks SET state = 'active', definition = replace(definition, 'paused', 'active')`}, detectedByAudit, audit.InvariantFold, "stored state active"},
		{"a webhook is removed", []string{`DELETE FROM recourse.webhooks`, `DELETE FROM recourse.webhook_positions`}, detectedByAudit, audit.InvariantFold, "is in receipt"},
		{"a webhook is set beyond the newest event", []string{`UPDATE recourse.webhook_positions SET read_to = read_to + 1000000`}, detectedByAudit, audit.InvariantFold, "it would miss events"},
		{"a webhook of a tenant with nothing else is added", []string{`INSERT INTO recourse.webhooks (id, tenant, version, state, definition, secret, created_at, created_by, changed_at, changed_by, reason)
			VALUES (gen_random_uuid(), 'stranger', 1, 'active', '{}', '', now(), 'user:bob', now(), 'user:bob', 'x')`}, detectedByAudit, audit.InvariantFold, "of stranger was made, and no receipt says so"},
		{"another is said to have planned", []string{`UPDATE recourse.bulks SET actor = 'user:bob' WHERE id = '` + s.unstartedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "stored planner user:bob"},
		{"another is said to have started a plan", []string{`UPDATE recourse.bulks SET started_by = 'user:eve' WHERE id = '` + s.executedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "stored starter user:eve"},
		{"a plan is set back", []string{`UPDATE recourse.bulks SET state = 'running', ended_at = NULL WHERE id = '` + s.executedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "stored state running"},
		{"a plan is said to have ended at another time", []string{`UPDATE recourse.bulks SET changed_at = changed_at - interval '1 day' WHERE id = '` + s.executedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "stored time of the last change"},
		{"a plan is said to have ended for another reason", []string{`UPDATE recourse.bulks SET changed_why = 'framed' WHERE id = '` + s.executedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "stored reason of the last change framed"},
		{"keys are said to prove who started a plan", []string{`UPDATE recourse.bulks SET declared = NOT declared WHERE id = '` + s.executedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "stored start by a name that no key proves"},
		{"an item of a plan is said to have made another run", []string{`UPDATE recourse.bulk_items SET new_run = run_id WHERE bulk_id = '` + s.executedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "is said to have made run"},
		{"an item of a plan is said to have made no run", []string{`UPDATE recourse.bulk_items SET new_run = NULL WHERE bulk_id = '` + s.executedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "is said to have made run none"},
		{"an item of a plan is edited", []string{`UPDATE recourse.bulk_items SET amount = 1 WHERE bulk_id = '` + s.unstartedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "stored hash"},
		{"what became of an item is edited", []string{`UPDATE recourse.bulk_items SET outcome = 'plan_stale' WHERE bulk_id = '` + s.executedPlan.ID.String() + `'`}, detectedByAudit, audit.InvariantFold, "and the receipts say that it was done"},
		{"a count of a plan is edited", []string{`UPDATE recourse.bulk_counts SET items = 9 WHERE bulk_id = '` + s.executedPlan.ID.String() + `' AND ran`}, detectedByAudit, audit.InvariantFold, "counts 9 items"},
		{"a run is marked to be cancelled", []string{`UPDATE recourse.runs SET cancel_requested = true, cancel_by = 'user:bob'` + id("letter")}, detectedByAudit, audit.InvariantFold, "to be cancelled by user:bob, and no receipt says so"},
		{"an operation log loses its case", []string{`DELETE FROM recourse.operation_logs WHERE subject = 'bulks'`}, detectedByAudit, audit.InvariantFold, "has the receipts of bulks, which is not there"},
		{"the list is said to be further than the order of events", []string{`UPDATE recourse.projected SET last = last + 100`}, detectedByAudit, audit.InvariantOrder, "and the list of letters follows it up to"},
	}
}

// What an owner of the tables can change, with triggers off and SHA-256 links recomputed where
// that hides it better, and what detects it: the audit alone, only saved heads, or only heads
// newer than the removed part. The table is in receipts/README.md.
func TestTamperingAndWhatDetectsIt(t *testing.T) {
	t.Parallel()
	s := newTamperedDatabase(t)
	ctx := context.Background()
	for _, f := range s.tamperings() {
		testkit.Tamper(t, s.DB, f.statements...)
		a, err := s.Audit(ctx) // of all tenants
		if err != nil {
			t.Fatalf("%s: %v", f.what, err)
		}
		found := map[string][]audit.Break{detectedByAudit: a.Breaks}
		for by, heads := range map[string]receipts.Heads{detectedByHeads: s.olderHeads, detectedByNewHeads: s.allHeads} {
			if found[by], err = audit.CompareHeads(ctx, s.AuditReader(), heads, a); err != nil {
				t.Fatal(err)
			}
		}
		silent := map[string][]string{detectedByAudit: nil, detectedByHeads: {detectedByAudit}, detectedByNewHeads: {detectedByAudit, detectedByHeads}}[f.detectedBy]
		for _, by := range silent {
			if len(found[by]) > 0 {
				t.Errorf("%s: noticed by %s: %+v", f.what, by, found[by])
			}
		}
		if !slices.ContainsFunc(found[f.detectedBy], func(b audit.Break) bool { return b.Invariant == f.invariant && strings.Contains(b.What, f.word) }) {
			t.Errorf("%s: not noticed by %s, as %q with %q: %+v", f.what, f.detectedBy, f.invariant, f.word, found)
		}
		for _, b := range slices.Concat(found[detectedByAudit], found[detectedByHeads], found[detectedByNewHeads]) {
			compared := b.Invariant == audit.InvariantHeads || strings.Contains(b.What, "the receipts say") || strings.Contains(b.What, "differs") || strings.Contains(b.What, "link does not follow")
			if compared && b.Stored == b.Expected {
				t.Errorf("%s: stored is what is expected: %+v", f.what, b)
			}
		}
		testkit.Tamper(t, s.DB, s.restoreSQL(schemaKept)...)
	}
	// Nothing notices what is written as a process writes it, as its password allows; the guide says so.
	forged := receipts.Draft{Subtype: receipts.Refused, Actor: "user:mallory", At: time.Now().UTC().Truncate(time.Microsecond), Payload: receipts.Payload{AskedFor: "fork", RefusedBy: "role_missing"}}
	testkit.Tamper(t, s.DB, append(s.rewriteTrailSQL("settled", func(ds []receipts.Draft) []receipts.Draft { return append(ds, forged) }),
		`INSERT INTO recourse.outbox (tenant, case_ids, seqs) SELECT tenant, ARRAY[id], ARRAY[last_seq] FROM recourse.cases WHERE id = '`+s.cases["settled"].String()+`'`)...)
	a, err := s.Audit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if broken, err := audit.CompareHeads(ctx, s.AuditReader(), s.allHeads, a); err != nil || len(broken) > 0 || !a.OK() {
		t.Errorf("a receipt that was appended with its place is noticed: %+v, %+v, %v", a.Breaks, broken, err)
	}
	testkit.Tamper(t, s.DB, append(s.restoreSQL(schemaKept), `DELETE FROM recourse.outbox`)...)
	if a := s.MustAudit(); !maps.Equal(a.Heads, s.allHeads) {
		t.Error("the database was not restored")
	}
}
