package redact

import (
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxMissed is how many forms of secrets may be missed; the README names each.
const maxMissed = 9

// secretForm is one line of testdata/secrets.txt.
type secretForm struct{ kind, limit, leak, text string }

var character = regexp.MustCompile(`<U\+([0-9A-F]{4,6})>`)

// syntheticSecrets are secrets in the formats of issuers, assembled here so that no file contains one.
var syntheticSecrets = strings.NewReplacer(
	"{card}", "4111111111111111",
	"{stripe}", "sk_"+"live_"+strings.Repeat("x7Qa", 6),
	"{ya29}", "ya"+"29."+strings.Repeat("a0Xb-", 8),
	"{akia}", "AK"+"IA"+strings.Repeat("Q2W7", 4),
	"{aws}", strings.Repeat("wJ9r/XtnF3", 4),
	"{github}", "gh"+"p_"+strings.Repeat("x7Qa", 9),
	"{hook}", "T0"+"00/B0"+"00/"+strings.Repeat("x7Qa", 6),
	"{jwt}", "ey"+"JhbGciOiJIUzI1NiJ9.ey"+"JzdWIiOiIxIn0.c2ln",
	"{adyen}", "AQ"+"E"+strings.Repeat("yhmfxK0n/", 6)+"=-"+strings.Repeat("i7F<", 3),
	"{square}", "EA"+"AA"+strings.Repeat("x7Qa", 15), "{squaresecret}", "sq0"+"csp-"+strings.Repeat("x7Qa", 10),
	"{razorpay}", "rzp"+"_live_"+strings.Repeat("x7Qa", 4), "{flutterwave}", "FLW"+"SECK-"+strings.Repeat("0a1b", 8)+"-X",
	"{braintree}", "access"+"_token$production$"+strings.Repeat("x7q", 5)+"$"+strings.Repeat("0a1b", 8),
	"{sendgrid}", "S"+"G."+strings.Repeat("x7Qa", 6)+"."+strings.Repeat("x7Qa", 10), "{shopify}", "shp"+"at_"+strings.Repeat("0a1b", 8),
	"{sk}", "s"+"k-"+strings.Repeat("x7Qa", 12), "{hf}", "h"+"f_"+strings.Repeat("x7Qa", 9), "{pypi}", "py"+"pi-AgE"+strings.Repeat("x7Qa", 20),
	"{docker}", "dckr"+"_pat_"+strings.Repeat("x7Qa", 7), "{atlassian}", "ATA"+"TT3"+strings.Repeat("x7Qa", 20),
	"{gitlabrunner}", "gl"+"rt-"+strings.Repeat("x7Qa", 5), "{azure}", "a1B8"+"Q~"+strings.Repeat("x7Q~", 8)+"ab",
	"{paseto}", "v4"+".local."+strings.Repeat("x7Qa", 20)+".x7Qa", "{age}", "AGE"+"-SECRET-KEY-1"+strings.Repeat("Q2W7", 14),
	"{openssh}", "b3Blbn"+"NzaC1rZXktdjE"+strings.Repeat("AAAA", 20), "{mailgun}", "ke"+"y-"+strings.Repeat("0a1b", 8),
	"{jwe}", "ey"+"JhbGciOiJSU0EtT0FFUCJ9.a1.b2.c3.d4", "{stripezw}", "sk_"+"li\u200bve_"+strings.Repeat("x7Qa", 6),
	"{own}", "rc"+"k_"+strings.Repeat("x7Qa", 10),
)

func expandForm(s string) string {
	s = character.ReplaceAllStringFunc(s, func(c string) string {
		n, err := strconv.ParseInt(character.FindStringSubmatch(c)[1], 16, 32)
		if err != nil {
			return c
		}
		return string(rune(n))
	})
	return syntheticSecrets.Replace(s)
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "# ") {
			out = append(out, line)
		}
	}
	return out
}

func secretForms(t *testing.T) []secretForm {
	t.Helper()
	var out []secretForm
	for _, line := range lines(t, "testdata/secrets.txt") {
		parts := strings.SplitN(line, "|", 4)
		if len(parts) != 4 {
			t.Fatalf("%q is not a line of the corpus", line)
		}
		f := secretForm{parts[0], parts[1], expandForm(parts[2]), expandForm(parts[3])}
		if !strings.Contains(f.text, f.leak) {
			t.Fatalf("%s: %q does not hold %q", f.kind, f.text, f.leak)
		}
		out = append(out, f)
	}
	return out
}

// Each known form of a secret is removed, or the README names it as a limit.
func TestKnownFormsOfSecretsAreRedactedOrListed(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	all, missed := secretForms(t), 0
	for _, f := range all {
		got := Text("POST /pay: " + f.text + " (try 1)")
		left := strings.Contains(got, f.leak)
		switch {
		case left && f.limit == "":
			t.Errorf("%s: %q is left in %q", f.kind, f.leak, got)
		case !left && f.limit != "":
			t.Errorf("%s is found: remove it from the README's limits and from the corpus", f.kind)
		case left && !strings.Contains(string(readme), f.limit):
			t.Errorf("%s is missed, and the README does not say %q", f.kind, f.limit)
		}
		if left {
			missed++
		} else if !strings.HasPrefix(got, "POST /pay: ") || !strings.HasSuffix(got, " (try 1)") && !strings.Contains(f.kind, "cookie") && !strings.Contains(f.kind, "private key") {
			t.Errorf("%s: more than the secret was removed: %q", f.kind, got)
		}
		if again := Text(got); again != got {
			t.Errorf("%s: a second time: %q, then %q", f.kind, got, again)
		}
	}
	if len(all) < 219 || missed > maxMissed {
		t.Errorf("%d of %d forms are missed", missed, len(all))
	}
}

// The same forms are refused as an id and in a payload; the named field does not contain the secret.
func TestKnownFormsOfSecretsAreFoundInSubmissions(t *testing.T) {
	t.Parallel()
	for _, f := range secretForms(t) {
		if f.limit != "" {
			continue
		}
		doc, err := json.Marshal(map[string]any{"items": []any{1, map[string]string{"note": f.text}}})
		if err != nil {
			t.Fatal(err)
		}
		if field, found := Find(doc); !found || field != "items[1].note" {
			t.Errorf("%s: found %v at %q", f.kind, found, field)
		}
		if !ContainsSecret(f.text) {
			t.Errorf("%s: %q is accepted as an id", f.kind, f.text)
		}
	}
}

// Wherever a text is cut, no part remains of a secret that is found in the whole text.
func TestNoFormIsCutInHalf(t *testing.T) {
	t.Parallel()
	for _, f := range secretForms(t) {
		if f.limit != "" {
			continue
		}
		for _, room := range []int{Limit - cutSlack, scanLimit} {
			for _, back := range []int{len(f.text) / 4, len(f.text) / 2, len(f.text) * 3 / 4, len(f.text) - 1} {
				in := strings.Repeat("a ", (room-back)/2) + strings.Repeat(" ", (room-back)%2) + f.text + strings.Repeat(" z", cutSlack)
				if got := Text(in); strings.Contains(got, f.leak) {
					t.Errorf("%s: %q is left, cut %d bytes after its start", f.kind, f.leak, back)
				}
			}
		}
	}
}

func TestTrimPartialDropsATokenCutByTheEnd(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                       "",
		"card 411111111111111":                   "card ",
		"card 4111 1111 1111 11":                 "card ",
		"card 4111-1111-1111-":                   "card ",
		`{"error":"declined","n":"41111111`:      `{"error":"declined","n":"`,
		"key sk_test_abc":                        "key ",
		"to DE89370400440532013":                 "to ",
		"declined for [card] and":                "declined for [card] ",
		"all is said. ":                          "all is said. ",
		"token=abc":                              "",
		strings.Repeat("w", 3*maxCutBack):        strings.Repeat("w", 2*maxCutBack),
		"支払い 4111":                               "支払い ",
		strings.Repeat("支", maxCutBack) + "\xe6": strings.Repeat("支", maxCutBack-maxCutBack/3),
	} {
		if got := TrimPartial(in); got != want {
			t.Errorf("TrimPartial(%.40q) = %.40q (%d bytes), want %.40q (%d)", in, got, len(got), want, len(want))
		}
	}
}

// Ids, amounts, digests, times and sentences are kept, and accepted as ids and in payloads.
func TestInnocentTextsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	all := lines(t, "testdata/innocent.txt")
	for _, text := range all {
		if got := Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
		if ContainsSecret(text) {
			t.Errorf("%q is refused as an id", text)
		}
		doc, err := json.Marshal(map[string]any{"note": text})
		if err != nil {
			t.Fatal(err)
		}
		if field, found := Find(doc); found {
			t.Errorf("%q is refused in a payload, at %q", text, field)
		}
	}
	if len(all) < 519 {
		t.Errorf("%d texts", len(all))
	}
}
