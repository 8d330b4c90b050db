package receipts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/receipts"
)

func TestBodyIsCanonicalJSONAndReadsBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		body, err := d.AppendBody(nil, testCase, "acme")
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := jcs.Transform(body)
		if err != nil || string(canonical) != string(body) {
			t.Fatalf("RFC 8785 (%v):\n%s\nours:\n%s", err, canonical, body)
		}
		got, err := receipts.Parse(body)
		if err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if diff := cmp.Diff(receipts.Entry{Case: testCase, Tenant: "acme", Draft: d}, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestABodyThatIsParsedOnceIsNotParsedAgain(t *testing.T) { // not parallel: it counts allocations
	rs, head := chained(t, testCase, sampleDrafts()...)
	plain := make([]receipts.Entry, len(rs))
	for i, r := range rs {
		var err error
		if plain[i], err = r.Entry(); err != nil {
			t.Fatal(err)
		}
	}
	unreadable := receipts.Receipt{Body: []byte("{}")}
	all := append(slices.Clone(rs), unreadable, receipts.Receipt{})
	receipts.ParseEach(all)
	for i, r := range all[:len(rs)] {
		got, err := r.Entry()
		if diff := cmp.Diff(plain[i], got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", r.ID(), err, diff)
		}
		if !r.Equal(rs[i]) {
			t.Errorf("%s differs from the receipt that is not parsed", r.ID())
		}
		if n := testing.AllocsPerRun(1, func() { _, err = r.Payload() }); err != nil || n > 0 {
			t.Errorf("%s is parsed again: %v, %g allocations", r.ID(), err, n)
		}
	}
	for _, r := range all[len(rs):] {
		if _, err := r.Entry(); err == nil {
			t.Errorf("%q is read", r.Body)
		}
	}
	parsed := all[:len(rs)]
	if end, err := (receipts.Verifier{}).Verify(testCase, parsed); err != nil || end != head {
		t.Errorf("verified: %v, %v, want %v", end, err, head)
	}

	// A receipt that gets another body says what that body says.
	changed := parsed[0]
	changed.Body = slices.Clone(rs[1].Body)
	if got, err := changed.Entry(); err != nil || got.Subtype != receipts.AttemptStarted {
		t.Errorf("another body: %+v, %v", got, err)
	}
	changed.Body = nil
	if _, err := changed.Entry(); err == nil {
		t.Error("a body that was removed is read")
	}
}

func TestReceiptsThatDifferAnywhereAreNotEqual(t *testing.T) {
	t.Parallel()
	rs, _ := chained(t, testCase, sampleDrafts()...)
	fields := reflect.TypeFor[receipts.Receipt]()
	for i := range fields.NumField() {
		if !fields.Field(i).IsExported() {
			continue
		}
		other := rs[1]
		reflect.ValueOf(&other).Elem().Field(i).SetZero()
		if other.Equal(rs[1]) || rs[1].Equal(other) {
			t.Errorf("%s is not compared", fields.Field(i).Name)
		}
	}
}

// The tags of Payload are for reading, the typed encoder is for writing. They must agree.
func TestPayloadTagsAndEncoderAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawDraft(t)
		written := receipts.EncodePayload(&d.Payload)
		plain, err := json.Marshal(d.Payload)
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := jcs.Transform(plain)
		if err != nil || string(canonical) != string(written) {
			t.Fatalf("tags (%v):\n%s\nencoder:\n%s", err, canonical, written)
		}
	})
}

func TestBodyAppendsAndLeavesWhatWasThere(t *testing.T) {
	t.Parallel()
	d := sampleDrafts()[0]
	alone, err := d.AppendBody(nil, testCase, "acme")
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.AppendBody([]byte("before{"), testCase, "acme")
	if err != nil || string(got) != "before{"+string(alone) {
		t.Fatalf("%s, %v", got, err)
	}
	d.Actor = ""
	got, err = d.AppendBody([]byte("before"), testCase, "acme")
	if err == nil || string(got) != "before" {
		t.Fatalf("after an error: %s, %v", got, err)
	}
}

func TestTimesAreUTCMicrosecondsCutNotRounded(t *testing.T) {
	t.Parallel()
	got := string(receipts.EncodeTime("at", time.Date(2026, 3, 1, 0, 30, 9, 999_999_999, time.FixedZone("CET", 3600))))
	if want := `{"at":"2026-02-28T23:30:09.999999Z"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWhatABodyCannotHoldIsRefusedByName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		field  string
		change func(c *receipts.CaseID, tenant *string, d *receipts.Draft)
	}{
		"no case":          {"case", func(c *receipts.CaseID, _ *string, _ *receipts.Draft) { *c = receipts.CaseID{} }},
		"no tenant":        {"tenant", func(_ *receipts.CaseID, t *string, _ *receipts.Draft) { *t = "" }},
		"NUL in tenant":    {"tenant", func(_ *receipts.CaseID, t *string, _ *receipts.Draft) { *t = "a\x00" }},
		"no actor":         {"actor", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.Actor = "" }},
		"no time":          {"at", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.At = time.Time{} }},
		"time cut to zero": {"at", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.At = time.Time{}.Add(999) }},
		"year 10000": {"at", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) {
			d.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
		}},
		"year 0": {"next_retry_at", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) {
			d.Payload.NextRetryAt = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
		}},
		"no subtype":      {"subtype", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.Subtype = "" }},
		"unknown subtype": {"subtype", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.Subtype = "attempt_started" }},
		"2^53":            {"amount", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.Payload.Amount = receipts.MaxInteger + 1 }},
		"-2^53":           {"excess", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.Payload.Excess = -receipts.MaxInteger - 1 }},
		"2^53 inside": {"settlement.moved", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) {
			d.Payload.Settlement = &receipts.SettlementSnapshot{Moved: receipts.MaxInteger + 1}
		}},
		"broken UTF-8":   {"error.message", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.Payload.Error.Message = "\xff" }},
		"surrogate half": {"reason", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.Payload.Reason = "\xed\xa0\x80" }},
		"NUL":            {"error.stack", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) { d.Payload.Error.Stack = "a\x00b" }},
		"first of two": {"amount", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) {
			d.Payload.Amount, d.Payload.Worker = 1<<60, "\xff"
		}},
		"after nested part": {"worker", func(_ *receipts.CaseID, _ *string, d *receipts.Draft) {
			d.Payload.Error.Code, d.Payload.Worker = "x", "\xff"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, tenant, d := testCase, "acme", sampleDrafts()[0]
			test.change(&c, &tenant, &d)
			_, err := d.AppendBody(nil, c, tenant)
			var field *receipts.FieldError
			if !errors.As(err, &field) || field.Field != test.field {
				t.Fatalf("error = %v, want a FieldError of %s", err, test.field)
			}
		})
	}
}

func TestCleanTextIsAlwaysWritableAndLeavesGoodTextAlone(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                       "",
		"fine \u2028 \U0001F4B8": "fine \u2028 \U0001F4B8",
		"a\x00b":                 "a\uFFFDb",
		"a\xffb":                 "a\uFFFDb",
	} {
		got := receipts.CleanText(in)
		if got != want {
			t.Errorf("CleanText(%q) = %q, want %q", in, got, want)
		}
		d := sampleDrafts()[0]
		d.Payload.Reason = got
		if _, err := d.AppendBody(nil, testCase, "acme"); err != nil {
			t.Errorf("%q: %v", got, err)
		}
	}
}

// A field that the encoder omits would be lost evidence.
func TestEachFieldOfAPayloadIsWritten(t *testing.T) {
	t.Parallel()
	empty, err := (&receipts.Draft{Subtype: receipts.Submitted, Actor: "a", At: testAt}).AppendBody(nil, testCase, "acme")
	if err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeFor[receipts.Payload]().NumField() {
		d := receipts.Draft{Subtype: receipts.Submitted, Actor: "a", At: testAt}
		setNonZero(t, reflect.ValueOf(&d.Payload).Elem().Field(i))
		body, err := d.AppendBody(nil, testCase, "acme")
		if err != nil {
			t.Fatal(err)
		}
		if string(body) == string(empty) {
			t.Errorf("%s is not written", reflect.TypeFor[receipts.Payload]().Field(i).Name)
		}
	}
}

func setNonZero(t *testing.T, v reflect.Value) {
	t.Helper()
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = "x"
	case *int, *int64:
		v.SetInt(7)
	case *bool:
		*p = true
	case *time.Time:
		*p = testAt
	case *receipts.RunID:
		*p = runB
	case *receipts.Failure:
		p.Code = "x"
	case **receipts.SettlementSnapshot:
		*p = new(receipts.SettlementSnapshot)
	case **receipts.WebhookPosition:
		*p = new(receipts.WebhookPosition)
	default:
		t.Fatalf("no value for %s", v.Type())
	}
}

func BenchmarkAppendBody(b *testing.B) {
	drafts := sampleDrafts()
	for name, d := range map[string]*receipts.Draft{"submitted": &drafts[0], "attempt-started": &drafts[1], "retry-scheduled": &drafts[2]} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 2048)
			for b.Loop() {
				if _, err := d.AppendBody(buf, testCase, "acme"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkChain(b *testing.B) {
	drafts := sampleDrafts()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := receipts.Chain(testCase, "acme", receipts.Genesis(testCase), drafts...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	rs, _ := chained(b, testCase, sampleDrafts()...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (receipts.Verifier{}).Verify(testCase, rs); err != nil {
			b.Fatal(err)
		}
	}
}

const plainBody = `{"actor":"a","at":"2026-03-01T11:00:00.000000Z","case":"01934b2e-7c00-7abc-8def-0123456789ab",` +
	`"payload":{"amount":5,"error":{"code":"é"}},"run":"","source":"dead_letter","subtype":"refused","tenant":"t"}`

func TestParseReadsAPlainBody(t *testing.T) {
	t.Parallel()
	e, err := receipts.Parse([]byte(plainBody))
	if err != nil {
		t.Fatal(err)
	}
	if e.Case != testCase || e.Tenant != "t" || !e.Run.IsZero() || e.Subtype != receipts.Refused || e.Payload.Amount != 5 || e.Payload.Error.Code != "é" {
		t.Errorf("%+v", e)
	}
}

func TestParseRefusesEveryOtherSpelling(t *testing.T) {
	t.Parallel()
	const u = "01934b2e-7c00-7abc-8def-0123456789ab"
	for name, change := range map[string][2]string{
		"space":                  {`,"run"`, `, "run"`},
		"member unknown":         {`"amount":5`, `"amount":5,"amounts":5`},
		"top member unknown":     {`"run":""`, `"run":"","seq":1`},
		"member repeated":        {`"amount":5`, `"amount":5,"amount":5`},
		"member misspelt":        {`"amount"`, `"Amount"`},
		"member missing":         {`"run":"",`, ``},
		"order":                  {`"run":"","source":"dead_letter"`, `"source":"dead_letter","run":""`},
		"number as float":        {`:5`, `:5.0`},
		"number as exponent":     {`:5`, `:5e0`},
		"number as text":         {`:5`, `:"5"`},
		"number too large":       {`:5`, `:9007199254740992`},
		"number beyond int64":    {`:5`, `:92233720368547758080`},
		"minus zero":             {`:5`, `:-0`},
		"zero written":           {`:5`, `:0`},
		"null":                   {`:5`, `:null`},
		"payload null":           {`{"amount":5,"error":{"code":"é"}}`, `null`},
		"empty error":            {`{"code":"é"}`, `{}`},
		"needless escape":        {`é`, `\u00e9`},
		"escaped slash":          {`é`, `\/`},
		"control character":      {`é`, "\n"},
		"broken UTF-8":           {`é`, "\xff"},
		"lone surrogate":         {`é`, `\ud800`},
		"NUL":                    {`é`, `\u0000`},
		"time without digits":    {`00.000000Z`, `00Z`},
		"time too fine":          {`00.000000Z`, `00.0000001Z`},
		"time with offset":       {`00.000000Z`, `00.000000+00:00`},
		"case in upper case":     {u, strings.ToUpper(u)},
		"no case":                {u, "00000000-0000-0000-0000-000000000000"},
		"run of zeros":           {`"run":""`, `"run":"00000000-0000-0000-0000-000000000000"`},
		"run not a UUID":         {`"run":""`, `"run":"x"`},
		"source of another":      {`dead_letter`, `operations`},
		"subtype unknown":        {`refused`, `refuted`},
		"tenant empty":           {`"tenant":"t"`, `"tenant":""`},
		"something after":        {`"tenant":"t"}`, `"tenant":"t"}` + "\n"},
		"a second body":          {`"tenant":"t"}`, `"tenant":"t"}{}`},
		"cut off":                {`"tenant":"t"}`, `"tenant":"t"`},
		"settlement incomplete":  {`"amount":5`, `"settlement":{"asked":1}`},
		"settlement null":        {`"amount":5`, `"settlement":null`},
		"id of zeros in payload": {`"amount":5`, `"new_run":"00000000-0000-0000-0000-000000000000"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := strings.Replace(plainBody, change[0], change[1], 1)
			if body == plainBody {
				t.Fatal("nothing was changed")
			}
			if e, err := receipts.Parse([]byte(body)); err == nil {
				t.Errorf("accepted %s as %+v", body, e)
			}
		})
	}
	for _, body := range []string{"", "null", "[]", "{}", `""`} {
		if _, err := receipts.Parse([]byte(body)); err == nil {
			t.Errorf("accepted %q", body)
		}
	}
}

func TestParseNamesTheReasonWhenOnlyTheFormIsWrong(t *testing.T) {
	t.Parallel()
	_, err := receipts.Parse([]byte(" " + plainBody))
	if !errors.Is(err, receipts.ErrNotCanonical) {
		t.Errorf("error = %v", err)
	}
}

func FuzzParseAcceptsOnlyWhatAppendBodyWrites(f *testing.F) {
	f.Add([]byte(plainBody))
	rs, _, err := receipts.Chain(testCase, "acme", receipts.Genesis(testCase), sampleDrafts()...)
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range rs {
		f.Add(r.Body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := receipts.Parse(body)
		if err != nil {
			return
		}
		again, err := e.Draft.AppendBody(nil, e.Case, e.Tenant)
		if err != nil || !bytes.Equal(again, body) {
			t.Fatalf("accepted %q, writes %q, %v", body, again, err)
		}
	})
}
