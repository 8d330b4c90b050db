package references_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication/references"
)

// match asks a policy of one rule for the field reference.
func match(t *testing.T, r references.Rule, value string) (string, bool) {
	t.Helper()
	r.Field = references.FieldReference
	m, err := references.Policy{Rules: []references.Rule{r}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return m.Match(references.FieldReference, value)
}

// The examples are those of the publishers of the schemes: of BITS and Nets for KID, of Bankgirot for OCR, of giro-kort.dk for
// FIK and of ISO 11649 for RF.
func TestASchemeTakesItsReferencesAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule  references.Rule
		value string
		want  bool
	}{
		{references.Rule{Scheme: references.KID}, "123456782", true}, // by modulus 10
		{references.Rule{Scheme: references.KID}, "123456785", true}, // by modulus 11
		{references.Rule{Scheme: references.KID}, "123456783", false},
		{references.Rule{Scheme: references.KID, Modulus: 10}, "123456782", true},
		{references.Rule{Scheme: references.KID, Modulus: 10}, "123456785", false},
		{references.Rule{Scheme: references.KID, Modulus: 11}, "123456785", true},
		{references.Rule{Scheme: references.KID, Modulus: 11}, "123456782", false},
		{references.Rule{Scheme: references.KID}, "1009-", true}, // the check digit is 10
		{references.Rule{Scheme: references.KID, Modulus: 11}, "1009-", true},
		{references.Rule{Scheme: references.KID, Modulus: 10}, "1009-", false},
		{references.Rule{Scheme: references.KID}, "-1009-", false},
		{references.Rule{Scheme: references.KID}, "125", false},                   // shorter than a KID
		{references.Rule{Scheme: references.KID}, strings.Repeat("0", 25), true},  // as long as one can be
		{references.Rule{Scheme: references.KID}, strings.Repeat("0", 26), false}, // longer
		{references.Rule{Scheme: references.KID, Length: 9}, "123456782", true},   // as long as agreed
		{references.Rule{Scheme: references.KID, Length: 10}, "123456782", false}, // shorter than agreed
		{references.Rule{Scheme: references.KID, Length: 16}, "5010123456789012", true},
		{references.Rule{Scheme: references.KID}, "12345678a", false},
		{references.Rule{Scheme: references.KID}, "１２３４５６７８２", false}, // digits of another script

		{references.Rule{Scheme: references.OCR}, "18", true},
		{references.Rule{Scheme: references.OCR}, "12345674", true},
		{references.Rule{Scheme: references.OCR}, "12345675", false},
		{references.Rule{Scheme: references.OCR}, "4111111111111111", true}, // a number of a card is one of Luhn, too
		{references.Rule{Scheme: references.OCR}, "1009-", false},
		{references.Rule{Scheme: references.OCR}, "0", false},

		{references.Rule{Scheme: references.FIK}, "000000000000018", true},
		{references.Rule{Scheme: references.FIK}, "000000000000026", true},
		{references.Rule{Scheme: references.FIK}, "0000000000000018", true}, // of type 75
		{references.Rule{Scheme: references.FIK}, "000000000000019", false},
		{references.Rule{Scheme: references.FIK}, "00000000000018", false},
		{references.Rule{Scheme: references.FIK, Length: 16}, "000000000000018", false},

		{references.Rule{Scheme: references.RF}, "RF18539007547034", true},
		{references.Rule{Scheme: references.RF}, "RF712348231", true},
		{references.Rule{Scheme: references.RF}, "RF19539007547034", false},
		{references.Rule{Scheme: references.RF}, "RF18", false},
		{references.Rule{Scheme: references.RF}, "18539007547034", false},
		{references.Rule{Scheme: references.RF}, "RF18539007547034-", false},

		{references.Rule{Pattern: "BG[0-9]{4}"}, "BG1234", true},
		{references.Rule{Pattern: "BG[0-9]{4}"}, "xBG1234", false}, // the whole value
		{references.Rule{Pattern: "BG[0-9]{4}"}, "BG12345", false},
		{references.Rule{Pattern: "BG[0-9]{4}"}, "BG1234\n", false},
		{references.Rule{Pattern: "a|b"}, "ab", false}, // neither alternative is the whole value
		{references.Rule{Pattern: ".+"}, "4111 1111", false},
		{references.Rule{Pattern: "(?m)^x$"}, "x\ny", false},
	} {
		canonical, got := match(t, c.rule, c.value)
		if got != c.want || got && canonical != c.value {
			t.Errorf("%s takes %q: %t, as %q", c.rule, c.value, got, canonical)
		}
	}
}

// A reference with blanks or with a name before it is recognised, and is the same reference.
func TestAReferenceHasOneSpelling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scheme      references.Scheme
		value, want string // empty: not taken
	}{
		{references.KID, "KID 5010 1234 5678 9012", "5010123456789012"},
		{references.KID, "kid:5010123456789012", "5010123456789012"},
		{references.KID, "KID-5010123456789012", "5010123456789012"},
		{references.KID, "50101 23456 78901 2", "5010123456789012"},
		{references.KID, "5010\u00a0123456789012", "5010123456789012"},
		{references.KID, "KID 1009-", "1009-"},
		{references.KID, "OCR 5010123456789012", ""},
		{references.KID, "5010-1234-5678-9012", ""},
		{references.KID, "KID", ""},
		{references.OCR, "OCR: 1234 5674", "12345674"},
		{references.FIK, "+71<000000000000018+12345678<", "000000000000018"},
		{references.FIK, "+71< 000000000000018 +12345678<", "000000000000018"},
		{references.FIK, "FIK +75<0000000000000018+12345678<", "0000000000000018"},
		{references.FIK, "+73<+12345678<", ""}, // has no payment id
		{references.RF, "rf18 5390 0754 7034", "RF18539007547034"},
	} {
		canonical, got := match(t, references.Rule{Scheme: c.scheme}, c.value)
		if got != (c.want != "") || got && canonical != c.want {
			t.Errorf("%s takes %q: %t, as %q, want %q", c.scheme, c.value, got, canonical, c.want)
		}
		if got && canonical != c.value && !references.MaySpell(c.value) {
			t.Errorf("%q is not known as a spelling", c.value)
		}
	}
}

// Ids of programs are no spellings of references, so that nobody reads a policy for them; to find that out costs nothing.
func TestOrdinaryIDsAreNoSpellings(t *testing.T) {
	ids := []string{"", "pay_123", "txr_1", "5010123456789012", "RF18539007547034", "0193a5c2-7b1e-7cc3-9d1f-6a1b2c3d4e5f", "kidney-17", "ocr", "+7", "stmt 2026-11", "rfc 822", "KID x123"}
	for _, id := range ids {
		if references.MaySpell(id) {
			t.Errorf("%q is taken for a spelling", id)
		}
	}
	if n := testing.AllocsPerRun(100, func() { references.MaySpell("0193a5c2-7b1e-7cc3-9d1f-6a1b2c3d4e5f"); references.MaySpell("pay_123") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestARuleHoldsForItsFieldAlone(t *testing.T) {
	t.Parallel()
	m, err := references.Policy{Rules: []references.Rule{
		{Field: "payload/lines/*/kid", Scheme: references.KID}, {Field: references.FieldReference, Scheme: references.RF}, {Field: references.FieldReference, Pattern: "BG[0-9]+"},
	}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for field, values := range map[string]map[string]bool{
		"payload/lines/*/kid":       {"123456782": true, "RF18539007547034": false},
		"payload/lines/0/kid":       {"123456782": false},
		"payload/kid":               {"123456782": false},
		references.FieldReference:   {"RF18539007547034": true, "BG1": true, "123456782": false},
		references.FieldTransaction: {"RF18539007547034": false},
		"":                          {"RF18539007547034": false},
	} {
		for value, want := range values {
			if _, got := m.Match(field, value); got != want {
				t.Errorf("%s %s: %t", field, value, got)
			}
		}
	}
	if _, takes := (references.Matcher{}).Match(references.FieldReference, "123456782"); takes {
		t.Error("no policy takes a value")
	}
}

func TestWhatIsWrongWithAPolicyIsNamed(t *testing.T) {
	t.Parallel()
	many := make([]references.Rule, references.MaxRules+1)
	for _, c := range []struct {
		rules []references.Rule
		field string // empty: nothing is wrong
	}{
		{nil, ""},
		{[]references.Rule{{Field: "reference", Scheme: references.KID, Modulus: 11, Length: 12}}, ""},
		{[]references.Rule{{Field: "payload/a~1b/~0/~2/*", Pattern: "x{1,3}"}}, ""},
		{[]references.Rule{{Field: "payload/a.b", Scheme: references.OCR}, {Field: "payload/a.b", Scheme: references.FIK}}, ""},
		{[]references.Rule{{Field: "reason", Scheme: references.KID}}, "rules[0].field"},
		{[]references.Rule{{Field: "payload", Scheme: references.KID}}, "rules[0].field"},
		{[]references.Rule{{Field: "payload.kid", Scheme: references.KID}}, "rules[0].field"},
		{[]references.Rule{{Field: "payloads/kid", Scheme: references.KID}}, "rules[0].field"},
		{[]references.Rule{{Field: "payload/a~3", Scheme: references.KID}}, "rules[0].field"},
		{[]references.Rule{{Field: "payload/a~", Scheme: references.KID}}, "rules[0].field"},
		{[]references.Rule{{Field: "payload/" + strings.Repeat("a", 255), Scheme: references.KID}}, "rules[0].field"},
		{[]references.Rule{{Field: "reference"}}, "rules[0].scheme"},
		{[]references.Rule{{Field: "reference", Scheme: references.KID, Pattern: "x"}}, "rules[0].scheme"},
		{[]references.Rule{{Field: "reference", Scheme: "iban"}}, "rules[0].scheme"},
		{[]references.Rule{{Field: "reference", Scheme: references.KID, Length: 26}}, "rules[0].length"},
		{[]references.Rule{{Field: "reference", Scheme: references.FIK, Length: 14}}, "rules[0].length"},
		{[]references.Rule{{Field: "reference", Pattern: "x", Length: 1}}, "rules[0].length"},
		{[]references.Rule{{Field: "reference", Scheme: references.KID, Modulus: 97}}, "rules[0].modulus"},
		{[]references.Rule{{Field: "reference", Scheme: references.OCR, Modulus: 10}}, "rules[0].modulus"},
		{[]references.Rule{{Field: "reference", Pattern: "("}}, "rules[0].pattern"},
		{[]references.Rule{{Field: "reference", Pattern: "a)(b"}}, "rules[0].pattern"},
		{[]references.Rule{{Field: "reference", Pattern: "x*"}}, "rules[0].pattern"},
		{[]references.Rule{{Field: "reference", Pattern: "(?<!a)b"}}, "rules[0].pattern"},
		{[]references.Rule{{Field: "reference", Pattern: "x{2000}"}}, "rules[0].pattern"},
		{[]references.Rule{{Field: "reference", Pattern: strings.Repeat("x", references.MaxPattern+1)}}, "rules[0].pattern"},
		{[]references.Rule{{Field: "reference", Pattern: "x\x00"}}, "rules[0].pattern"},
		{[]references.Rule{{Field: "reference", Scheme: references.KID}, {Field: "reference", Scheme: references.KID}}, "rules[1]"},
		{many, "rules"},
	} {
		err := references.Policy{Rules: c.rules}.Validate()
		var wrong *references.FieldError
		if errors.As(err, &wrong) != (c.field != "") || wrong != nil && wrong.Field != c.field {
			t.Errorf("%.80q: %v, want %q", c.rules, err, c.field)
		}
	}
}

func TestAPolicyIsReadFromJSONWithoutGuesses(t *testing.T) {
	t.Parallel()
	p, err := references.Parse([]byte(`{"rules": [{"field": "reference", "scheme": "kid", "modulus": 11}]}`))
	if want := (references.Rule{Field: "reference", Scheme: references.KID, Modulus: 11}); err != nil || !slices.Equal(p.Rules, []references.Rule{want}) {
		t.Errorf("%+v, %v", p, err)
	}
	for _, text := range []string{``, `null`, `[]`, `{}`, `{"rules":null}`, `{"rules":[],"rule":[]}`, `{"rules":[],"rules":[]}`, `{"Rules":[]}`, `{"rules":[{"field":"reference","schema":"kid"}]}`, `{"rules":[{"field":"x","scheme":"kid"}]}`, `{"rules":[]} x`} {
		if p, err := references.Parse([]byte(text)); !errors.As(err, new(*references.FieldError)) {
			t.Errorf("%s is read as %+v, %v", text, p, err)
		}
	}
}

// What a receipt keeps is read back; a receipt of a newer version is known as one.
func TestAReceiptKeepsAPolicy(t *testing.T) {
	t.Parallel()
	for _, p := range []references.Policy{{Rules: []references.Rule{}}, {Rules: []references.Rule{{Field: "payload/a~1b", Scheme: references.KID, Modulus: 10, Length: 9}, {Field: "reference", Pattern: `<&>"\d`}}}} {
		text, err := references.Encode(p)
		if err != nil {
			t.Fatal(err)
		}
		got, newer, err := references.Decode(text)
		if err != nil || newer != 0 || !slices.Equal(got.Rules, p.Rules) {
			t.Errorf("%s: %+v, %d, %v", text, got, newer, err)
		}
	}
	if _, newer, err := references.Decode(`{"format":2,"rules":"in another form"}`); newer != 2 || err != nil {
		t.Errorf("a newer format: %d, %v", newer, err)
	}
	if _, _, err := references.Decode(`{"format":1,"rules":"in another form"}`); err == nil {
		t.Error("a broken receipt is read")
	}
}

func TestChangesNameWhatWasAddedAndRemoved(t *testing.T) {
	t.Parallel()
	kid := references.Rule{Field: "reference", Scheme: references.KID, Modulus: 11, Length: 12}
	pattern := references.Rule{Field: "payload/kid", Pattern: "BG[0-9]+"}
	before, after := references.Policy{Rules: []references.Rule{kid}}, references.Policy{Rules: []references.Rule{pattern}}
	if got := references.Changes(before, after); got != "added payload/kid pattern BG[0-9]+; removed reference kid modulus 11 length 12" {
		t.Error(got)
	}
	if got := references.Changes(after, after); got != "" {
		t.Error(got)
	}
}
