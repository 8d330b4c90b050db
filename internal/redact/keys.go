package redact

import "strings"

// keyForms are the prefixes by which issuers mark their keys, and the minimum number of characters after
// them.
var keyForms = [...]struct {
	prefix string
	more   int
}{
	{"sk_live_", 8}, {"sk_test_", 8}, {"rk_live_", 8}, {"rk_test_", 8}, {"whsec_", 16},
	{"sk-proj-", 16}, {"sk-ant-", 16},
	{"AKIA", 16}, {"ASIA", 16}, {"AIza", 30},
	{"ghp_", 30}, {"gho_", 30}, {"ghu_", 30}, {"ghs_", 30}, {"ghr_", 30}, {"github_pat_", 30}, {"glpat-", 16},
	{"xoxb-", 10}, {"xoxp-", 10}, {"xoxa-", 10}, {"xoxs-", 10}, {"xapp-", 10}, {"npm_", 30},
	{"ya29.", 20}, {"hvs.", 20}, {"dop_v1_", 30},
	{"rck_", 30}, // this program's: package access
}

// webhookPrefixes are the prefixes of URLs whose path is a credential.
var webhookPrefixes = [...]string{"hooks.slack.com/services/", "discord.com/api/webhooks/", "discordapp.com/api/webhooks/"}

// minWebhookPath is the minimum number of characters of such a path.
const minWebhookPath = 10

// webhook replaces the path of the URL that begins at i if it is a credential.
func (sc *scanner) webhook(i int) (int, bool) {
	for _, prefix := range webhookPrefixes {
		if prefix[0] != sc.s[i] || !strings.HasPrefix(sc.s[i:], prefix) {
			continue
		}
		from := i + len(prefix)
		end := keyEnd(sc.s, from)
		for end < len(sc.s) && sc.s[end] == '/' {
			end = keyEnd(sc.s, end+1)
		}
		if end-from >= minWebhookPath {
			return sc.replace(from, end, RedactedMark), true
		}
	}
	return 0, false
}

// jwtMin is the minimum length of the header of a JSON Web Token: an object with an algorithm.
const jwtMin = 16

// knownKey replaces a key of a known format, or a JSON Web Token, that begins at i.
func (sc *scanner) knownKey(i int) (int, bool) {
	rest := sc.s[i:]
	switch rest[0] {
	case 'e':
		if strings.HasPrefix(rest, "eyJ") {
			return sc.jwt(i)
		}
		return 0, false
	case 'h', 'd':
		if next, ok := sc.webhook(i); ok {
			return next, true
		}
	case 's', 'r', 'w', 'A', 'g', 'x', 'n', 'y':
	default:
		return 0, false
	}
	for _, k := range keyForms {
		if k.prefix[0] != rest[0] || !strings.HasPrefix(rest, k.prefix) {
			continue
		}
		if end := keyEnd(sc.s, i+len(k.prefix)); end-i-len(k.prefix) >= k.more {
			return sc.replace(i, end, RedactedMark), true
		}
	}
	return 0, false
}

// jwt replaces a token with two dots or more, signed or encrypted, or one that was truncated after its first dot.
func (sc *scanner) jwt(i int) (int, bool) {
	if i < sc.noJWTBefore {
		return 0, false
	}
	end := keyEnd(sc.s, i)
	if end-i < jwtMin || end == len(sc.s) || sc.s[end] != '.' {
		sc.noJWTBefore = end // a later start in this run gives a shorter text with the same end
		return 0, false
	}
	for end < len(sc.s) && sc.s[end] == '.' {
		end = keyEnd(sc.s, end+1)
	}
	return sc.replace(i, end, RedactedMark), true
}

// keyEnd returns the end of the URL-safe base64 that begins at i.
func keyEnd(s string, i int) int {
	for i < len(s) && (isAlnum(s[i]) || s[i] == '_' || s[i] == '-') {
		i++
	}
	return i
}

const (
	pemBegin = "-----BEGIN "
	pemEnd   = "-----END "
	pemDash  = "-----"
	// pemLabel is the maximum length of a label.
	pemLabel = 64
)

// pem replaces the private key block that begins at i. A block without an end runs to the end of the text.
func (sc *scanner) pem(i int) int {
	rest := sc.s[i:]
	if !strings.HasPrefix(rest, pemBegin) {
		return i + 1
	}
	label := rest[len(pemBegin):min(len(rest), len(pemBegin)+pemLabel)]
	if dash := strings.Index(label, pemDash); dash >= 0 {
		label = label[:dash]
	}
	if !strings.Contains(label, "PRIVATE KEY") {
		return i + 1
	}
	end := len(sc.s)
	if at := strings.Index(rest, pemEnd); at >= 0 {
		after := at + len(pemEnd)
		if dash := strings.Index(rest[after:], pemDash); dash >= 0 {
			end = i + after + dash + len(pemDash)
		}
	}
	return sc.replace(i, end, RedactedMark)
}
