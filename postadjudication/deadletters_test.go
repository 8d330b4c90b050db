package postadjudication_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// Each filter finds its letter and not the other one.
func TestEachFilterTellsTwoLettersApart(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	a := rig.Release(1)
	a.Amount, a.Held = rig.Euros(700), rig.Euros(900)
	r.Escrow.Script(func(_ context.Context, c escrow.Call) escrow.Answer {
		if c.Amount.Minor == 700 {
			return escrow.Answer{Class: escrow.NotExecuted, Type: "http.refused", Code: "422", Message: `Account 4711 of "Jane" closed`}
		}
		return rig.NoAnswer()
	})
	r.Escrow.ScriptLookups(rig.GivesNoAnswer)
	one := r.MustSubmit(a)
	r.WaitNoneLive()
	between := r.Letters(deadletter.Filter{})[0].DeadAt.Add(time.Microsecond) // by the clock of the letters
	b := rig.Refund(2)
	b.Amount, b.Held = settlement.Money{Minor: 90000, Currency: "USD"}, settlement.Money{Minor: 90000, Currency: "USD"}
	b.Actor = "escrow-desk"
	two := r.MustSubmit(b)
	r.WaitNoneLive()
	all := r.Letters(deadletter.Filter{})
	if len(all) != 2 || all[0].Run != two.Run || all[1].Run != one.Run {
		t.Fatalf("%+v", all)
	}
	l := all[1]
	if l.Signature != `http.refused: Account # of "#" closed` || l.Amount == nil || l.Amount.Minor != 700 || l.AtRisk.Minor != 700 || l.Submission != "sub_1" || l.Queue == "" ||
		l.Family != postadjudication.Family || l.JobType != postadjudication.Family || l.Replays != 0 || l.Held || l.Reprocess || l.Review || !all[0].Review || l.ExpiresAt == nil || all[0].ExpiresAt != nil || l.Dispatch != l.Run.String()+".1" {
		t.Errorf("%+v\n%+v", l, all[0])
	}
	for _, f := range []deadletter.Filter{
		{Outcome: "release"}, {ReasonCode: "final"}, {Class: escrow.NotExecuted}, {ErrorType: "http.refused"}, {ErrorText: "ACCOUNT"}, {ErrorText: "4711 of"}, {ErrorText: "jane"},
		{Signature: l.Signature}, {To: between}, {MaxAttempts: ptr(int64(2))}, {MaxAmount: ptr(int64(700))}, {Currency: "EUR"}, {Transaction: "txr_1"},
		{Submission: "sub_1"}, {Escrow: "esc_1"}, {Dispatch: l.Dispatch}, {Review: ptr(false)}, {ExpiringWithin: deadletter.Duration(181 * day)},
		{Status: "open", Class: escrow.NotExecuted, Currency: "EUR", ErrorText: "closed", MinAmount: ptr(int64(1)), Escrow: "esc_1"},
	} {
		if got := r.Letters(f); len(got) != 1 || got[0].Run != one.Run {
			t.Errorf("%+v finds %+v", f, got)
		}
	}
	for _, f := range []deadletter.Filter{
		{Outcome: "refund"}, {ReasonCode: "retry_exhausted"}, {Class: escrow.Unknown}, {ErrorType: "http.no_answer"}, {ErrorText: "reset"}, {From: between},
		{MinAttempts: ptr(int64(2))}, {MinAmount: ptr(int64(701))}, {Currency: "USD"}, {Review: ptr(true)},
	} {
		if got := r.Letters(f); len(got) != 1 || got[0].Run != two.Run {
			t.Errorf("%+v finds %+v", f, got)
		}
	}
	for _, f := range []deadletter.Filter{
		{Status: "forked"}, {Family: "mailer"}, {Queue: "settlement:9"}, {JobType: "mail"}, {ErrorText: "nowhere"}, {ErrorText: "#"}, {OlderThan: deadletter.Duration(time.Hour)}, {ReplayedBy: "user:ada"}, {MinReplays: ptr(int64(1))},
		{Held: ptr(true)}, {Reprocess: ptr(true)}, {ExpiringWithin: deadletter.Duration(day)}, {Dispatch: l.Run.String() + ".2"}, {Class: escrow.Unknown, Currency: "EUR"},
	} {
		if got := r.Letters(f); len(got) != 0 {
			t.Errorf("%+v finds %+v", f, got)
		}
	}
	for _, f := range []deadletter.Filter{{Status: "open"}, {Family: postadjudication.Family}, {JobType: postadjudication.Family}, {YoungerThan: deadletter.Duration(time.Hour)}, {MaxReplays: ptr(int64(0))}, {Held: ptr(false)}} {
		if got := r.Letters(f); len(got) != 2 {
			t.Errorf("%+v finds %+v", f, got)
		}
	}
}

// A committed change is in the list, even if no running process keeps the list up to date.
func TestAListShowsWhatWasJustDone(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.RateLimits)
	r.StopWorkers()
	ctx := context.Background()
	if got := r.Letters(deadletter.Filter{Status: "open"}); len(got) != 1 || !got[0].Reprocess {
		t.Fatalf("%+v", got)
	}
	if _, err := r.As("acme", "user:ada").DeadLetters.Fork(ctx, letter.Run, rig.ForkRequest); err != nil {
		t.Fatal(err)
	}
	if got := r.Letters(deadletter.Filter{Status: "open"}); len(got) != 0 {
		t.Errorf("still open: %+v", got)
	}
	if got := r.Letters(deadletter.Filter{ReplayedBy: "user:ada", MinReplays: ptr(int64(1))}); len(got) != 1 || got[0].Run != letter.Run || got[0].Replays != 1 || got[0].Status != background.LetterForked {
		t.Errorf("%+v", got)
	}
}

// The letter of a fork counts the forks before it.
func TestReplaysAreCountedDownTheLine(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	for _, actor := range []string{"user:ada", "user:bob"} {
		r.Escrow.Answer(rig.Refuses)
		f, err := r.As("acme", actor).DeadLetters.Fork(context.Background(), letter.Run, deadletter.Fork{Reason: "again", Policy: &retrypolicy.Policy{MaxRetryAttempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		r.WaitNoneLive()
		letter = rig.AsSubmitted(f)
	}
	got := r.Letters(deadletter.Filter{Status: "open"})
	if len(got) != 1 || got[0].Run != letter.Run || got[0].Replays != 2 || got[0].ReplayedBy != "user:bob" {
		t.Errorf("%+v", got)
	}
	if n := len(r.Letters(deadletter.Filter{MinReplays: ptr(int64(2))})); n != 2 {
		t.Errorf("%d letters of two tries", n)
	}
}

// An invalid filter is refused with the field's name; it never selects more.
func TestAFilterThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{"lettter":"open"}`: "lettter", `{"letter":"opne"}`: "letter", `{"letter":"purged"}`: "letter", `{"outcome":"both"}`: "outcome", `{"outcome_class":"maybe"}`: "outcome_class",
		`{"reason_code":"bored"}`: "reason_code", `{"currency":"eur"}`: "currency", `{"error_text":"a\nb"}`: "error_text", `{"queue":"` + strings.Repeat("x", 600) + `"}`: "queue",
		`{"died_from":"yesterday"}`: "died_from", `{"died_from":"2026-11-02T00:00:00Z","died_to":"2026-11-02T00:00:00Z"}`: "died_to",
		`{"older_than":"-1h"}`: "older_than", `{"older_than":"x"}`: "older_than", `{"older_than":"2d","younger_than":"1d"}`: "younger_than", `{"expiring_within":3}`: "expiring_within",
		`{"min_attempts":-1}`: "min_attempts", `{"min_attempts":3,"max_attempts":2}`: "max_attempts", `{"min_amount":1.5}`: "min_amount", `{"max_amount":9007199254740992}`: "max_amount",
		`{"max_replays":"3"}`: "max_replays", `{"dispatch_reference":"x.1"}`: "dispatch_reference", `{"held":"yes"}`: "held",
		`[]`: "filter", `{} {}`: "filter", ``: "filter", `null {}`: "filter",
		`null`: "filter", `{"letter":""}`: "letter", `{"queue":null}`: "queue", `{"expiring_within":"0s"}`: "expiring_within", `{"Letter":"open"}`: "Letter", `{"held":true,"held":null}`: "held",
		`{"letter":"open","letter":"forked"}`: "letter", `{"letter":"open","Letter":"forked"}`: "Letter", `{"queue":"\ud800"}`: "queue",
	} {
		_, err := deadletter.ParseFilter([]byte(text))
		var wrong *refusal.FieldError
		if !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v, want a complaint of %s", text, err, field)
		}
	}
}

func TestLettersCanBeAskedForByWhateverTheirRunsDieOf(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{
		background.ReasonRetryExhausted, background.ReasonFinal, background.ReasonNonRetryableType, background.ReasonOutcomeUnknown, background.ReasonPoisonPill,
		background.ReasonUnrecordable, background.ReasonRequestAltered, background.ReasonOrdered, background.ReasonExpired,
		postadjudication.ReasonCaseEnded, postadjudication.ReasonPaidUnderOlderKey,
	} {
		if err := (deadletter.Filter{ReasonCode: reason}).Validate(); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

func TestAFilterIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 2, 3, 4, 5, 6000, time.UTC)
	f := deadletter.Filter{Status: "open", Family: "a", Queue: "a:0", JobType: "a", Outcome: "refund", ReasonCode: "final", Class: escrow.Unknown, ErrorType: "x", ErrorText: "y", Signature: "x: y",
		From: at, To: at.Add(time.Hour), OlderThan: deadletter.Duration(90 * time.Minute), YoungerThan: deadletter.Duration(30 * day), MinAttempts: ptr(int64(0)), MaxAttempts: ptr(int64(3)), MinAmount: ptr(int64(1)), MaxAmount: ptr(int64(2)),
		Currency: "EUR", Transaction: "t", Submission: "s", Escrow: "e", Dispatch: "00000000-0000-7000-8000-000000000001.1", ReplayedBy: "r", MinReplays: ptr(int64(1)), MaxReplays: ptr(int64(1)),
		Held: ptr(false), Reprocess: ptr(true), Review: ptr(true), ExpiringWithin: deadletter.Duration(7 * day)}
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("the test leaves out %s", v.Type().Field(i).Name)
		}
	}
	text, err := f.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := deadletter.ParseFilter(text)
	if err != nil || !reflect.DeepEqual(back, f) {
		t.Errorf("%s\n%+v\n%+v, %v", text, back, f, err)
	}
	f.From = f.From.In(time.FixedZone("", 3600)).Add(999)
	if same, err := f.Encode(); err != nil || string(same) != string(text) {
		t.Errorf("%s\n%s, %v", same, text, err)
	}
	if text, err := (deadletter.Filter{}).Encode(); err != nil || string(text) != "{}" {
		t.Errorf("%s, %v", text, err)
	}
}

// A cursor is valid only for the list that returned it.
func TestACursorBelongsToItsList(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	for n := range 3 {
		r.DeadLetter(n, rig.Refuses)
	}
	ctx := context.Background()
	q := deadletter.Query{Filter: deadletter.Filter{Status: "open"}, Limit: 2}
	first, err := r.As("acme", "").DeadLetters.List(ctx, q)
	if err != nil || !first.More || len(first.Letters) != 2 {
		t.Fatalf("%+v, %v", first, err)
	}
	q.After = first.Next
	if last, err := r.As("acme", "").DeadLetters.List(ctx, q); err != nil || last.More || last.Next != "" || len(last.Letters) != 1 {
		t.Errorf("%+v, %v", last, err)
	}
	forged := []byte(first.Next)
	forged[5] ^= 1
	for what, change := range map[string]func(tenant *string, q *deadletter.Query){
		"tenant": func(tenant *string, _ *deadletter.Query) { *tenant = "other" }, "sort": func(_ *string, q *deadletter.Query) { q.Sort = deadletter.OldestFirst },
		"filter": func(_ *string, q *deadletter.Query) { q.Filter.Status = "" }, "forged": func(_ *string, q *deadletter.Query) { q.After = string(forged) },
		"cut": func(_ *string, q *deadletter.Query) { q.After = q.After[:20] }, "none": func(_ *string, q *deadletter.Query) { q.After = "x" },
	} {
		tenant, other := "acme", q
		change(&tenant, &other)
		var field *refusal.FieldError
		if _, err := r.As(tenant, "").DeadLetters.List(ctx, other); !errors.As(err, &field) || field.Field != "after" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for field, bad := range map[string]deadletter.Query{"limit": {Limit: 1001}, "sort": {Limit: 1, Sort: "prettiest"}, "outcome": {Limit: 1, Filter: deadletter.Filter{Outcome: "both"}}} {
		var wrong *refusal.FieldError
		if _, err := r.As("acme", "").DeadLetters.List(ctx, bad); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var wrong *refusal.FieldError
	if _, err := r.As("", "").DeadLetters.Count(ctx, deadletter.Filter{}); !errors.As(err, &wrong) || wrong.Field != "tenant" {
		t.Errorf("no tenant: %v", err)
	}
}

// Every order lists every letter once and in order, whatever the page size.
func TestEveryOrderListsEveryLetterOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	for n := range 7 {
		a := rig.Release(n)
		a.Amount, a.Held = rig.Euros(int64(100+n%3)), rig.Euros(1000)
		r.Escrow.Script(func(context.Context, escrow.Call) escrow.Answer {
			if n%2 == 0 {
				return rig.Refused()
			}
			return rig.RateLimited()
		})
		r.MustSubmit(a)
		r.WaitNoneLive()
	}
	goes := map[deadletter.Sort]func(a, b deadletter.Letter) bool{
		deadletter.NewestFirst: func(a, b deadletter.Letter) bool { return !a.DeadAt.Before(b.DeadAt) }, deadletter.OldestFirst: func(a, b deadletter.Letter) bool { return !a.DeadAt.After(b.DeadAt) },
		deadletter.HighestAmount: func(a, b deadletter.Letter) bool { return a.Amount.Minor >= b.Amount.Minor }, deadletter.LowestAmount: func(a, b deadletter.Letter) bool { return a.Amount.Minor <= b.Amount.Minor },
		deadletter.MostAttempts: func(a, b deadletter.Letter) bool { return a.Attempts >= b.Attempts }, deadletter.LastSeen: func(a, b deadletter.Letter) bool { return !a.LastSeenAt.Before(b.LastSeenAt) },
	}
	for _, sort := range deadletter.Sorts {
		var all []deadletter.Letter
		seen := map[background.RunID]bool{}
		for q := (deadletter.Query{Sort: sort, Limit: 2}); ; {
			page, err := r.As("acme", "").DeadLetters.List(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range page.Letters {
				if n := len(all); seen[l.Run] || n > 0 && !goes[sort](all[n-1], l) {
					t.Errorf("%s: letter %d is out of place: %+v", sort, n, l)
				}
				seen[l.Run], all = true, append(all, l)
			}
			if q.After = page.Next; !page.More {
				break
			}
		}
		if len(all) != 7 {
			t.Errorf("%s: %d letters", sort, len(all))
		}
	}
	if text, err := json.Marshal(deadletter.Letter{Age: deadletter.Duration(36 * time.Hour)}); err != nil || !strings.Contains(string(text), `"age":"36h0m0s"`) {
		t.Errorf("%s, %v", text, err)
	}
}
