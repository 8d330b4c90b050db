package receipts

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const plainBody = `{"actor":"a","at":"2026-03-01T11:00:00.000000Z","case":"01934b2e-7c00-7abc-8def-0123456789ab",` +
	`"payload":{"amount":5,"error":{"code":"é"}},"run":"","source":"dead_letter","subtype":"refused","tenant":"t"}`

func TestParseReadsAPlainBody(t *testing.T) {
	t.Parallel()
	e, err := Parse([]byte(plainBody))
	if err != nil {
		t.Fatal(err)
	}
	if e.Case != testCase || e.Tenant != "t" || !e.Run.IsZero() || e.Subtype != Refused || e.Payload.Amount != 5 || e.Payload.Error.Code != "é" {
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
			if e, err := Parse([]byte(body)); err == nil {
				t.Errorf("accepted %s as %+v", body, e)
			}
		})
	}
	for _, body := range []string{"", "null", "[]", "{}", `""`} {
		if _, err := Parse([]byte(body)); err == nil {
			t.Errorf("accepted %q", body)
		}
	}
}

func TestParseNamesTheReasonWhenOnlyTheFormIsWrong(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(" " + plainBody))
	if !errors.Is(err, ErrNotCanonical) {
		t.Errorf("error = %v", err)
	}
}

func FuzzParseAcceptsOnlyWhatAppendBodyWrites(f *testing.F) {
	f.Add([]byte(plainBody))
	rs, _, err := Chain(testCase, "acme", Genesis(testCase), sampleDrafts()...)
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range rs {
		f.Add(r.Body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := Parse(body)
		if err != nil {
			return
		}
		again, err := AppendBody(nil, e.Case, e.Tenant, e.Draft)
		if err != nil || !bytes.Equal(again, body) {
			t.Fatalf("accepted %q, writes %q, %v", body, again, err)
		}
	})
}
