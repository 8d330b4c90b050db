package signature

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFailuresOfOneCauseHaveOneSignature(t *testing.T) {
	t.Parallel()
	for want, messages := range map[string][]string{
		"t: account # closed":                         {"account 4711 closed", "account 12 closed", "account  7f3a9c01 closed"},
		`t: account "#" closed`:                       {`account "Jane" closed`, `account "4711 a" closed`, `account "" closed`},
		"t: holder '#' can't be reached":              {"holder 'Jane Doe' can't be reached", "holder '' can't be reached"},
		"t: can't do what it doesn't":                 {"can't do what it doesn't"},
		"t: dial tcp #:#: connection refused":         {"dial tcp 10.0.0.7:8443: connection refused", "dial tcp 192.168.1.20:80: connection refused"},
		"t: run # was lost":                           {"run 0198c1f0-7a3c-7b1e-8f00-0123456789ab was lost", "run 42 was lost"},
		"t: txr_#: no such transaction":               {"txr_99: no such transaction", "txr_8f3ac1: no such transaction"},
		"t: timeout after # at #":                     {"timeout after 1.5s at 2026-11-21T10:00:00Z", "timeout after 300ms at 2026-11-21 10:00:00.123+01:00"},
		"t: at # the clock stood still":               {"at 10:04 the clock stood still", "at 23:59:59.9 the clock stood still"},
		"t: https://bank.example/#/x":                 {"https://bank.example/v1/x", "https://bank.example/v2/x"},
		"t: asked '#' twice":                          {"asked 'https://bank.example/1' twice", "asked 'joe@bank.example' twice"},
		"t: https://bank.example/transfers/# refused": {"https://bank.example/transfers/4711 refused", "https://bank.example/transfers/ab12 refused"},
		"t: https://bank.example/transfers?#":         {"https://bank.example/transfers?id=1", "https://bank.example/transfers?id=2&x=y"},
		"t: # is unknown":                             {"jane.doe@bank.example is unknown", "joe@bank.example is unknown"},
		"t: key # expired":                            {"key deadbeefdeadbeef expired", "key 0a1b2c3d expired"},
		"t: node# said: die Bühne brennt":             {"node7 said: die Bühne brennt", "node12 said: die Bühne brennt"},
		`t: {"code":"account_closed","message":"#"}`:  {`{"code":"account_closed","message":"47 is closed"}`, `{"code":"account_closed","message":"Account 12 is closed"}`},
		`t: {"holder": "#", "tries": #, "to": ["#"]}`: {`{"holder": "Jane", "tries": 3, "to": ["jane"]}`, `{"holder": "Jo", "tries": 12, "to": ["joe"]}`},
		`t: {"code":"#"}`:                             {`{"code":"ABC123"}`, `{"code":"a word of a person"}`, `{"code":""}`, `{"code":"` + strings.Repeat("a", 41) + `"}`},
		`t: open "#": no such file`:                   {`open "a": no such file`, `open "b": no such file`},
		"t":                                           {"", " \n "},
	} {
		for _, m := range messages {
			if got := Of("t", m).Text; got != want {
				t.Errorf("%q: %q, want %q", m, got, want)
			}
		}
	}
	if got := Of("", "account 1 closed").Text; got != "account # closed" {
		t.Errorf("without a type: %q", got)
	}
}

func TestFailuresOfOtherCausesHaveOtherSignatures(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, m := range []string{"account closed", "account frozen", "no such account", "account # closed now", "a face in the facade", "dial tcp: refused", "dial udp: refused",
		`{"code":"account_closed"}`, `{"code":"sanctions_hit"}`, `{"reason": "DECLINED"}`, `{"reason": "EXPIRED"}`, `{"cause":"expired"}`} {
		s := Of("http.refused", m)
		if other := seen[s.Text]; other != "" {
			t.Errorf("%q and %q are both %q", m, other, s.Text)
		}
		if seen[s.Text] = m; !s.Whole {
			t.Errorf("a part of %q was removed: %q", m, s.Text)
		}
	}
	if Of("a", "x") == Of("b", "x") {
		t.Error("the type makes no difference")
	}
}

func TestASignatureIsBoundedAndStandsForItself(t *testing.T) {
	t.Parallel()
	long := Of("t", strings.Repeat("ü", 2000))
	if len(long.Text) > MaxText || !utf8.ValidString(long.Text) || long.Whole || !utf8.ValidString(long.Constant) {
		t.Errorf("%d bytes, whole %v", len(long.Text), long.Whole)
	}
	if again := Of("", Of("t", "account 4711 closed").Text).Text; again != "t: account # closed" {
		t.Errorf("%q", again)
	}
}

// Every text between two gaps is in every message of the signature.
func FuzzConstantPartsAreInTheMessage(f *testing.F) {
	for _, m := range []string{"account 4711 of \"Jane\" closed", "https://x.example/a/1?q=2 'b' can't", "«a» “b” 1.2.3 0a1b2c3d-", "İ ſ K \xff", "\x00", "x://@:/?"} {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, message string) {
		if strings.Contains(message, Gap) || !utf8.ValidString(message) {
			return // redaction removes both before
		}
		s := Of("t", message)
		lower := strings.ToLower(message)
		for _, part := range strings.Split(s.Constant, Gap) {
			if !strings.Contains(lower, part) {
				t.Errorf("%q is not in %q", part, lower)
			}
		}
		if s.Whole && s.Constant != lower {
			t.Errorf("%q differs from %q", s.Constant, lower)
		}
		if len(s.Text) > MaxText || !utf8.ValidString(s.Text) {
			t.Errorf("text %q", s.Text)
		}
	})
}
