package receipts_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/receipts"
)

func TestIDTextIsCanonicalAndReadsBack(t *testing.T) {
	t.Parallel()
	const text = "01934b2e-7c00-7abc-8def-0123456789ab"
	for _, in := range []string{text, strings.ToUpper(text)} {
		c, err := receipts.ParseCaseID(in)
		if err != nil || c.String() != text {
			t.Errorf("ParseCaseID(%q) = %s, %v", in, c, err)
		}
		r, err := receipts.ParseRunID(in)
		if err != nil || r.String() != text {
			t.Errorf("ParseRunID(%q) = %s, %v", in, r, err)
		}
	}
}

func TestOtherSpellingsOfAUUIDAreRefused(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", "01934b2e7c007abc8def0123456789ab", "{01934b2e-7c00-7abc-8def-0123456789ab}",
		"urn:uuid:01934b2e-7c00-7abc-8def-0123456789ab", "01934b2e-7c00-7abc-8def-0123456789a",
		"01934b2e-7c00-7abc-8def-0123456789ag", "01934b2e-7c00-7abc-8def-0123456789ab ",
		"01934b2e_7c00_7abc_8def_0123456789ab", "01934b2-e7c00-7abc-8def-0123456789ab", "ſ1934b2e-7c00-7abc-8def-0123456789a",
	} {
		if c, err := receipts.ParseCaseID(in); err == nil || !c.IsZero() {
			t.Errorf("ParseCaseID(%q) = %s, %v", in, c, err)
		}
		if r, err := receipts.ParseRunID(in); err == nil || !r.IsZero() {
			t.Errorf("ParseRunID(%q) = %s, %v", in, r, err)
		}
	}
}

func TestIDsTravelInJSONAndSurviveABadOne(t *testing.T) {
	t.Parallel()
	type ids struct {
		C receipts.CaseID
		R receipts.RunID
	}
	in := ids{testCase, runA}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out ids
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Fatalf("%s reads back as %v, %v", b, out, err)
	}
	if err := out.C.UnmarshalText([]byte("x")); err == nil || out.C != in.C {
		t.Errorf("a bad text left %s, %v", out.C, err)
	}
	if err := out.R.UnmarshalText([]byte("x")); err == nil || out.R != in.R {
		t.Errorf("a bad text left %s, %v", out.R, err)
	}
}
