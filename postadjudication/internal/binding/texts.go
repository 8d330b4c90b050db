package binding

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
)

// RuleDeleted follows the rule's name in the receipt of a deletion.
const RuleDeleted = "deleted"

// The changes of a webhook, as receipts name them, besides events.WebhookPause.
const (
	WebhookCreate = "create"
	WebhookResume = "resume"
	WebhookRotate = "rotate"
	WebhookReplay = "replay"
	WebhookDelete = "delete"
)

// SecretRotation returns the text of a rotation of a webhook's secret in its receipt. former is until
// when requests are also signed with the former secret; zero: they are not.
func SecretRotation(former time.Time) string {
	if former.IsZero() {
		return "secret; the former one ends at once"
	}
	return "secret; the former one ends at " + former.Format(time.RFC3339)
}

// EncryptedSecretDigest returns the digest of a webhook's secret, as it is stored, in its receipts; empty
// if it has none.
func EncryptedSecretDigest(encrypted []byte) string {
	if encrypted == nil {
		return ""
	}
	digest := sha256.Sum256(encrypted)
	return hex.EncodeToString(digest[:])
}

// KeyDigest returns the digest of what is stored of an access key's secret, in its receipt. Who knows it
// can't tell the secret.
func KeyDigest(k access.Key) string {
	digest := sha256.Sum256(k.Digest[:])
	return hex.EncodeToString(digest[:])
}

// KeyTerms returns the text of an access key in its receipt: principal, roles, queues, expiry and
// predecessor.
func KeyTerms(k access.Key) string {
	until := "for ever"
	if k.ExpiresAt != nil {
		until = "until " + k.ExpiresAt.Format(time.RFC3339)
	}
	if k.SuccessorOf != "" {
		until += " as successor of " + k.SuccessorOf
	}
	if len(k.Queues) > 0 {
		until = "of " + strings.Join(k.Queues, "+") + " " + until
	}
	return k.Principal + " as " + RoleText(k.Roles) + " " + until
}

// RoleText returns roles as receipts name them.
func RoleText(roles []access.Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, "+")
}
