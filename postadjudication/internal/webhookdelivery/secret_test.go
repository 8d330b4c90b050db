package webhookdelivery

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

func testKey(fill byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, keySize))
}

func mustKeys(t *testing.T, text string) Keys {
	t.Helper()
	k, err := ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestASealedSecretOpensForItsWebhookOnly(t *testing.T) {
	t.Parallel()
	id, secret := uuid.New(), []byte("a secret of twenty-four b")
	one, both, other := mustKeys(t, testKey(1)), mustKeys(t, testKey(2)+", "+testKey(1)), mustKeys(t, testKey(3))
	encrypted, err := one.Encrypt("acme", id, secret)
	if err != nil || bytes.Contains(encrypted, secret) {
		t.Fatalf("%x, %v", encrypted, err)
	}
	for _, k := range []Keys{one, both} {
		if got, err := k.Decrypt("acme", id, encrypted); err != nil || !bytes.Equal(got, secret) {
			t.Errorf("%q, %v", got, err)
		}
	}
	again, err := one.Encrypt("acme", id, secret)
	if err != nil || bytes.Equal(again, encrypted) {
		t.Errorf("the same secret looks the same: %v", err)
	}
	for what, open := range map[string]func() ([]byte, error){
		"another webhook": func() ([]byte, error) { return one.Decrypt("acme", uuid.New(), encrypted) },
		"another tenant":  func() ([]byte, error) { return one.Decrypt("bank", id, encrypted) },
		"another key":     func() ([]byte, error) { return other.Decrypt("acme", id, encrypted) },
		"no key":          func() ([]byte, error) { return Keys{}.Decrypt("acme", id, encrypted) },
		"nothing":         func() ([]byte, error) { return one.Decrypt("acme", id, nil) },
		"a cut one":       func() ([]byte, error) { return one.Decrypt("acme", id, encrypted[:len(encrypted)-1]) },
		"another byte": func() ([]byte, error) {
			return one.Decrypt("acme", id, append(bytes.Clone(encrypted[:20]), append([]byte{encrypted[20] ^ 1}, encrypted[21:]...)...))
		},
	} {
		if got, err := open(); !errors.Is(err, errUnreadableSecret) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if _, err := (Keys{}).Encrypt("acme", id, secret); !errors.Is(err, ErrNoKey) {
		t.Errorf("%v", err)
	}
}

func TestBadKeysAreRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x", testKey(1) + ",", base64.StdEncoding.EncodeToString(make([]byte, 31)), base64.StdEncoding.EncodeToString(make([]byte, 33)), testKey(1) + "," + strings.Repeat("A", 43)} {
		_, err := ParseKeys(text)
		if err == nil {
			t.Errorf("%q is taken", text)
			continue
		}
		for _, part := range strings.Split(text, ",") {
			if len(part) > 4 && strings.Contains(err.Error(), part) {
				t.Errorf("the error shows the key: %v", err)
			}
		}
	}
	if k := mustKeys(t, " "); !k.Empty() {
		t.Error("an empty text has a key")
	}
}

func TestSecretsThatAreTooShortOrMalformedAreRefused(t *testing.T) {
	t.Parallel()
	of := func(n int) string { return secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for text, ok := range map[string]bool{of(24): true, of(64): true, of(23): false, of(65): false, "whsec_": false, "whsec_%": false, strings.TrimPrefix(of(32), secretPrefix): false, of(32) + "\n": false} {
		raw, got, err := NewSecret(text)
		var field *refusal.FieldError
		switch {
		case ok && (err != nil || got != text || len(raw) < minSecret):
			t.Errorf("%q: %q, %v", text, got, err)
		case !ok && (!errors.As(err, &field) || field.Field != "secret"):
			t.Errorf("%q: %v", text, err)
		}
	}
	seen := map[string]bool{}
	for range 100 {
		raw, text, err := NewSecret("")
		if err != nil || len(raw) != secretSize || seen[text] {
			t.Fatalf("%q, %v", text, err)
		}
		seen[text] = true
		if read, _, err := NewSecret(text); err != nil || !bytes.Equal(read, raw) {
			t.Fatalf("%q reads back as %x, %v", text, read, err)
		}
	}
}
