package referencepolicy_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/internal/testkit/poll"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/referencepolicy"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

const kid = "5010123456789012" // also a number of Maestro

func change(rules ...references.Rule) references.Change {
	return references.Change{Policy: references.Policy{Rules: append([]references.Rule{}, rules...)}, Reason: "the agreement with the bank"}
}

var kidOfReferences = references.Rule{Field: references.FieldReference, Scheme: references.KID, Modulus: 10, Length: 16}

// process returns a journal and the policies of one process.
func process(t *testing.T, url string) (*journal.Journal, *referencepolicy.Store) {
	t.Helper()
	j := journaltest.Open(t, url)
	return j, referencepolicy.New(j.Operations, j.Receipts)
}

func mustSet(t *testing.T, s *referencepolicy.Store, q references.Change) references.Version {
	t.Helper()
	now, err := s.Set(t.Context(), "acme", "user:ada", time.Now().UTC(), q)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func TestAPolicyHasItsVersionsByReceipts(t *testing.T) {
	t.Parallel()
	_, s := process(t, testkit.Migrated(t))
	ctx := t.Context()
	if now, err := s.Newest(ctx, "acme"); err != nil || now.Version != 0 || now.Tenant != "acme" || len(now.Policy.Rules) != 0 {
		t.Errorf("before any change: %+v, %v", now, err)
	}
	if found, err := s.History(ctx, "acme", 0, 10); err != nil || len(found) != 0 {
		t.Errorf("before any change: %+v, %v", found, err)
	}
	first := mustSet(t, s, change(kidOfReferences))
	if first.Version != 1 || first.Actor != "user:ada" || first.Reason != "the agreement with the bank" || first.Changes != "added reference kid modulus 10 length 16" || first.Receipt == "" || first.At.IsZero() {
		t.Errorf("%+v", first)
	}
	if same := mustSet(t, s, change(kidOfReferences)); same.Receipt != first.Receipt {
		t.Errorf("the same policy again: %+v", same)
	}
	if second := mustSet(t, s, change()); second.Version != 2 || second.Changes != "removed reference kid modulus 10 length 16" {
		t.Errorf("%+v", second)
	}
	wrong := int64(1)
	q := change(kidOfReferences)
	q.IfVersion = &wrong
	var other *references.VersionError
	if _, err := s.Set(ctx, "acme", "user:ada", time.Now(), q); !errors.As(err, &other) || other.Expected != 1 || other.Current.Version != 2 {
		t.Errorf("of another version: %v", err)
	}
	if _, err := s.Set(ctx, "acme", "user:ada", time.Now(), change(references.Rule{Field: "reason", Scheme: references.KID})); !errors.As(err, new(*references.FieldError)) {
		t.Errorf("a wrong policy: %v", err)
	}
	found, err := s.History(ctx, "acme", 0, 10)
	if err != nil || len(found) != 2 || found[0].Receipt != first.Receipt || found[1].Version != 2 {
		t.Errorf("%+v, %v", found, err)
	}
	if page, err := s.History(ctx, "acme", 1, 10); err != nil || len(page) != 1 || page[0].Version != 2 {
		t.Errorf("%+v, %v", page, err)
	}
	if theirs, err := s.History(ctx, "globex", 0, 10); err != nil || len(theirs) != 0 {
		t.Errorf("of another tenant: %+v, %v", theirs, err)
	}
}

// Of admins who set a policy at once, in several processes, one at a time is first, and the others hear which is in force.
func TestOfAdminsAtOnceEachChangeHasItsVersion(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	const admins = 8
	var done sync.WaitGroup
	made := make(chan references.Version, admins)
	for n := range admins {
		_, s := process(t, url)
		done.Go(func() {
			q := change(references.Rule{Field: references.FieldReference, Scheme: references.KID, Length: 10 + n})
			now, err := s.Set(t.Context(), "acme", "user:ada", time.Now().UTC(), q)
			var other *references.VersionError
			switch {
			case errors.As(err, &other):
				if other.Current.Version <= other.Expected {
					t.Errorf("refused for version %d while %d is in force", other.Expected, other.Current.Version)
				}
			case err != nil:
				t.Error(err)
			default:
				made <- now
			}
		})
	}
	done.Wait()
	close(made)
	_, s := process(t, url)
	found, err := s.History(t.Context(), "acme", 0, 100)
	if err != nil || len(found) != len(made) || len(found) == 0 {
		t.Fatalf("%d versions of %d changes that were made, %v", len(found), len(made), err)
	}
	for i, v := range found {
		if v.Version != int64(i+1) || len(v.Policy.Rules) != 1 {
			t.Errorf("%+v", v)
		}
	}
}

// A policy applies at once where it is set, and in other processes a moment later. What looks like no secret needs none.
func TestAPolicyAppliesInEveryProcess(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	_, here := process(t, url)
	_, there := process(t, url)
	ctx := t.Context()
	takes := func(s *referencepolicy.Store) bool {
		_, taken, err := s.Take(ctx, "acme", kid)
		if err != nil {
			t.Error(err)
		}
		return taken
	}
	if takes(here) || takes(there) {
		t.Fatal("a reference is taken without a policy")
	}
	mustSet(t, here, change(kidOfReferences))
	if !takes(here) {
		t.Error("not in force where it was set")
	}
	poll.Until(t, "the other process applies it", func() bool { return takes(there) })
	mustSet(t, there, change())
	if takes(there) {
		t.Error("still in force where it was removed")
	}
	poll.Until(t, "it is removed in the first process", func() bool { return !takes(here) })
}

func TestWhatThePolicyTakesIsAccepted(t *testing.T) {
	t.Parallel()
	_, s := process(t, testkit.Migrated(t))
	ctx := t.Context()
	mustSet(t, s, change(kidOfReferences, references.Rule{Field: references.FieldTransaction, Scheme: references.KID}, references.Rule{Field: "payload/lines/*/kid", Scheme: references.OCR}))
	refused := func(err error) bool { return errors.As(err, new(*refusal.FieldError)) }

	for value, want := range map[string]struct {
		stated   string // empty: refused
		answered string
	}{
		kid:                       {kid, kid},
		"pay_1":                   {"pay_1", "pay_1"},
		"KID 5010 1234 5678 9012": {"", kid},
		"kid:" + kid:              {"", kid},
		"4111111111111111":        {"4111111111111111", "4111111111111111"}, // passes modulus 10, as every such number of 16 digits
		"4012888888881":           {"", "[card]"},                           // a number of 13 digits
		kid + " password=hunter2": {"", "[card] password=[redacted]"},
		"DE89370400440532013000":  {"", "[iban]"},
		"5010-1234-5678-9012":     {"", "[card]"},
	} {
		stated, err := s.Stated(ctx, "acme", "reference", value)
		if refused(err) != (want.stated == "") || err == nil && stated != want.stated {
			t.Errorf("a person states %q: %q, %v", value, stated, err)
		}
		if err != nil && strings.Contains(err.Error(), value) {
			t.Errorf("the refusal repeats the value: %v", err)
		}
		if answered, err := s.Answered(ctx, "acme", value); err != nil || answered != want.answered {
			t.Errorf("a service answers %q: %q, %v", value, answered, err)
		}
	}
	if answered, err := s.Answered(ctx, "globex", kid); err != nil || answered != "[card]" {
		t.Errorf("of another tenant: %q, %v", answered, err)
	}
	for field, want := range map[string]bool{references.FieldTransaction: true, references.FieldEscrow: false, "actor": false, "tenant": false} {
		problem, err := s.Recheck(ctx, "acme", field, kid)
		if err != nil || (problem == nil) != want {
			t.Errorf("%s: %v, %v", field, problem, err)
		}
	}
	if problem, err := s.Recheck(ctx, "acme", references.FieldTransaction, "KID "+kid); err != nil || problem == nil || !strings.Contains(problem.Error(), "canonical") {
		t.Errorf("another spelling of an id: %v, %v", problem, err)
	}
	for payload, field := range map[string]string{
		`{"lines":[{"kid":"` + kid + `"},{"kid":` + kid + `}]}`: "",
		`{"lines":[{"kid":"KID ` + kid + `"}]}`:                 "payload.lines[0].kid",
		`{"lines[0].kid":"` + kid + `"}`:                        "payload.lines[0].kid",
		`{"lines":{"*":{"kid":"` + kid + `"}}}`:                 "payload.lines.*.kid",
		`{"kid":"` + kid + `"}`:                                 "payload.kid",
		`{"lines":[{"kid":"` + kid + `","token":"abc"}]}`:       "payload.lines[0].token",
	} {
		err := s.CheckPayload(ctx, "acme", json.RawMessage(payload))
		var wrong *refusal.FieldError
		if errors.As(err, &wrong) != (field != "") || wrong != nil && wrong.Field != field {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

// A policy that can't be read is an error, by which nothing is refused; what looks like no secret is accepted all the same.
func TestAPolicyThatCantBeReadRefusesNothing(t *testing.T) {
	t.Parallel()
	j, s := process(t, testkit.Migrated(t))
	ctx := t.Context()
	j.Close()
	if _, err := s.Stated(ctx, "acme", "reference", "pay_1"); err != nil {
		t.Errorf("an ordinary reference: %v", err)
	}
	if _, err := s.Answered(ctx, "acme", "pay_1"); err != nil {
		t.Errorf("an ordinary answer: %v", err)
	}
	_, _, take := s.Take(ctx, "acme", kid)
	_, stated := s.Stated(ctx, "acme", "reference", kid)
	_, answered := s.Answered(ctx, "acme", kid)
	_, recheck := s.Recheck(ctx, "acme", references.FieldTransaction, kid)
	_, recheckPayload := s.Recheck(ctx, "acme", references.PayloadPrefix, `{"kid":"`+kid+`"}`)
	for what, err := range map[string]error{"take": take, "stated": stated, "answered": answered, "recheck": recheck, "payload": s.CheckPayload(ctx, "acme", json.RawMessage(`{"kid":"`+kid+`"}`)), "payload again": recheckPayload} {
		if err == nil || errors.As(err, new(*refusal.FieldError)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A policy of a newer version of the program takes nothing, refuses nothing, and is shown as such. An admin who says so replaces it.
func TestAPolicyOfANewerVersionIsNotGuessed(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	j, s := process(t, url)
	ctx := t.Context()
	mustSet(t, s, change(kidOfReferences))
	if err := j.Operations.Append(ctx, "acme", referencepolicy.Log, receipts.Draft{Subtype: receipts.ReferencesChanged, Actor: "user:new", At: time.Now().UTC(), Payload: receipts.Payload{
		References: `{"format":2,"rules":{"reference":["kid"]}}`, Reason: "from a newer program",
	}}); err != nil {
		t.Fatal(err)
	}
	_, fresh := process(t, url)
	var newer *references.FormatError
	_, _, err := fresh.Take(ctx, "acme", kid)
	if !errors.As(err, &newer) || newer.Version != 2 || newer.Format != 2 || !strings.Contains(err.Error(), "newer version of Recourse") {
		t.Errorf("it takes a reference: %v", err)
	}
	if !errors.Is(referencepolicy.Unreadable(err), refusal.ErrUnreadable) {
		t.Error("an answer is not kept until a program can read the policy")
	}
	if now, err := fresh.Newest(ctx, "acme"); err != nil || now.Format != 2 || now.Version != 2 || now.Actor != "user:new" {
		t.Errorf("%+v, %v", now, err)
	}
	if found, err := fresh.History(ctx, "acme", 0, 10); err != nil || len(found) != 2 || found[1].Format != 2 {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := fresh.Set(ctx, "acme", "user:ada", time.Now(), change()); !errors.As(err, &newer) {
		t.Errorf("it is replaced unasked: %v", err)
	}
	forced := change(kidOfReferences)
	forced.Force = true
	if now := mustSet(t, fresh, forced); now.Version != 3 || now.Format != 0 || !strings.HasPrefix(now.Changes, "replaced a policy of a newer version") {
		t.Errorf("%+v", now)
	}
	if _, taken, err := fresh.Take(ctx, "acme", kid); err != nil || !taken {
		t.Errorf("after it was replaced: %v, %v", taken, err)
	}
}
