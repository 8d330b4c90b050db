package webhookdelivery

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Keys encrypt the secrets of webhooks. The first encrypts, all decrypt. The zero value has none:
// then no webhook can be created.
type Keys struct {
	all []encryptionKey
}

type encryptionKey struct {
	id   [4]byte // the beginning of the key's digest
	aead cipher.AEAD
}

// keySize is the size of a key, in bytes.
const keySize = 32

// ErrNoKey means that a webhook can't be created, rotated or tested since this process has no key
// that encrypts secrets.
var ErrNoKey = errors.New("webhooks: no key encrypts secrets; set RECOURSE_WEBHOOK_KEY to 32 random bytes as base64")

// errUnreadableSecret means that no key decrypts a stored secret.
var errUnreadableSecret = errors.New("no key of RECOURSE_WEBHOOK_KEY decrypts its secret; add the key that encrypted it, or rotate the secret")

// ParseKeys parses keys of 32 bytes each, as base64 with commas between them. The first encrypts. An
// empty text gives none. Errors never contain a key.
func ParseKeys(text string) (Keys, error) {
	var k Keys
	if strings.TrimSpace(text) == "" {
		return k, nil
	}
	for i, part := range strings.Split(text, ",") {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(part))
		if err != nil || len(raw) != keySize {
			return Keys{}, fmt.Errorf("webhooks: key %d is not %d bytes as base64, such as openssl rand -base64 32 prints", i+1, keySize)
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return Keys{}, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return Keys{}, err
		}
		digest := sha256.Sum256(raw)
		k.all = append(k.all, encryptionKey{[4]byte(digest[:4]), aead})
	}
	return k, nil
}

// Empty reports whether there is no key.
func (k Keys) Empty() bool { return len(k.all) == 0 }

// Encrypt encrypts the secret of a webhook. It can be decrypted for the same webhook only.
func (k Keys) Encrypt(tenant string, id uuid.UUID, secret []byte) ([]byte, error) {
	if k.Empty() {
		return nil, ErrNoKey
	}
	first := k.all[0]
	return first.aead.Seal(first.id[:], nil, secret, boundTo(tenant, id)), nil
}

// Decrypt decrypts a secret that Encrypt encrypted.
func (k Keys) Decrypt(tenant string, id uuid.UUID, encrypted []byte) ([]byte, error) {
	for _, key := range k.all {
		if rest, ok := bytes.CutPrefix(encrypted, key.id[:]); ok {
			if secret, err := key.aead.Open(nil, nil, rest, boundTo(tenant, id)); err == nil {
				return secret, nil
			}
		}
	}
	return nil, errUnreadableSecret
}

// boundTo returns what an encrypted secret is bound to.
func boundTo(tenant string, id uuid.UUID) []byte {
	return append(append([]byte("recourse/webhook/1"), id[:]...), tenant...)
}

const (
	secretPrefix = "whsec_"
	secretSize   = 32 // of generated secrets
	minSecret    = 24
	maxSecret    = 64
)

// NewSecret returns the secret in a text, or a random one for an empty text, with the text of it.
func NewSecret(text string) (secret []byte, asText string, err error) {
	if text == "" {
		secret = make([]byte, secretSize)
		rand.Read(secret) // never fails
		return secret, secretPrefix + base64.StdEncoding.EncodeToString(secret), nil
	}
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	secret, err = base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || base64.StdEncoding.EncodeToString(secret) != encoded || len(secret) < minSecret || len(secret) > maxSecret {
		return nil, "", &refusal.FieldError{Field: "secret", Problem: fmt.Sprintf("must be %s and %d to %d random bytes as base64", secretPrefix, minSecret, maxSecret)}
	}
	return secret, text, nil
}
