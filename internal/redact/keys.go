package redact

import "strings"

// keyForm is a prefix by which an issuer marks its keys, and the minimum number of characters after it. mixed asks for
// digits, small and capital letters among them, where the prefix is also a beginning of names. whole means that the key
// runs to the next blank or quote, as it has more signs than those of URL-safe base64.
type keyForm struct {
	prefix string
	more   int
	mixed  bool
	whole  bool
}

var keyForms = [...]keyForm{
	{prefix: "sk_live_", more: 8}, {prefix: "sk_test_", more: 8}, {prefix: "rk_live_", more: 8}, {prefix: "rk_test_", more: 8},
	{prefix: "whsec_", more: 16}, {prefix: "sk-proj-", more: 16}, {prefix: "sk-ant-", more: 16}, {prefix: "sk-", more: 32, mixed: true},
	{prefix: "AKIA", more: 16}, {prefix: "ASIA", more: 16}, {prefix: "AIza", more: 30},
	{prefix: "ghp_", more: 30}, {prefix: "gho_", more: 30}, {prefix: "ghu_", more: 30}, {prefix: "ghs_", more: 30},
	{prefix: "ghr_", more: 30}, {prefix: "github_pat_", more: 30}, {prefix: "glpat-", more: 16}, {prefix: "glrt-", more: 16},
	{prefix: "xoxb-", more: 10}, {prefix: "xoxp-", more: 10}, {prefix: "xoxa-", more: 10}, {prefix: "xoxs-", more: 10},
	{prefix: "xapp-", more: 10}, {prefix: "npm_", more: 30}, {prefix: "ya29.", more: 20}, {prefix: "hvs.", more: 20},
	{prefix: "dop_v1_", more: 30}, {prefix: "hf_", more: 30, mixed: true}, {prefix: "pypi-AgE", more: 16},
	{prefix: "dckr_pat_", more: 20}, {prefix: "ATATT3", more: 40}, {prefix: "SG.", more: 20, mixed: true, whole: true},
	{prefix: "AGE-SECRET-KEY-1", more: 40}, {prefix: "b3BlbnNzaC1rZXktdjE", more: 20, whole: true}, // OpenSSH
	{prefix: "v1.local.", more: 40, mixed: true, whole: true}, {prefix: "v2.local.", more: 40, mixed: true, whole: true},
	{prefix: "v3.local.", more: 40, mixed: true, whole: true}, {prefix: "v4.local.", more: 40, mixed: true, whole: true},
	{prefix: "v1.public.", more: 40, mixed: true, whole: true}, {prefix: "v2.public.", more: 40, mixed: true, whole: true},
	{prefix: "v3.public.", more: 40, mixed: true, whole: true}, {prefix: "v4.public.", more: 40, mixed: true, whole: true},
	// Payment providers.
	{prefix: "AQE", more: 40, mixed: true, whole: true}, // Adyen
	{prefix: "sq0atp-", more: 20}, {prefix: "sq0csp-", more: 20}, {prefix: "EAAA", more: 50, mixed: true},
	{prefix: "rzp_live_", more: 10}, {prefix: "rzp_test_", more: 10},
	{prefix: "FLWSECK-", more: 16}, {prefix: "FLWSECK_TEST-", more: 8},
	{prefix: "access_token$production$", more: 8, whole: true}, {prefix: "access_token$sandbox$", more: 8, whole: true},
	{prefix: "shpat_", more: 30}, {prefix: "shpss_", more: 30}, {prefix: "shpca_", more: 30}, {prefix: "shppa_", more: 30},
	{prefix: "rck_", more: 30}, // this program's: package access
}

// end returns the end of the key that begins at i in s, 0 if there is none of this form.
func (k keyForm) end(s string, i int) int {
	if !strings.HasPrefix(s[i:], k.prefix) {
		return 0
	}
	from := i + len(k.prefix)
	// What is no key is read again from its next word on: it is judged by its beginning.
	if end := k.run(s[:min(len(s), from+maxKeyHead)], from); end-from < k.more || k.mixed && !isMixed(s[from:end]) {
		return 0
	}
	return k.run(s, from)
}

// maxKeyHead is how many characters of a key are judged.
const maxKeyHead = 128

// run returns the end of the characters of a key of this form that begin at i.
func (k keyForm) run(s string, i int) int {
	if k.whole {
		return token(s, i).to
	}
	return keyEnd(s, i)
}

// isMixed reports whether s has digits, small and capital letters.
func isMixed(s string) bool {
	const digits, small, capital = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return strings.ContainsAny(s, digits) && strings.ContainsAny(s, small) && strings.ContainsAny(s, capital)
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
	case 'P':
		return putty(sc, i)
	}
	if next, ok := azure(sc, i); ok {
		return next, true
	}
	for _, at := range keysByLetter[rest[0]] {
		if end := keyForms[at].end(sc.s, i); end > 0 {
			return sc.replace(i, end, RedactedMark), true
		}
	}
	return 0, false
}

// keysByLetter has the places in keyForms of the prefixes that begin with a letter.
var keysByLetter [256][]int

func init() {
	for at, k := range keyForms {
		keysByLetter[k.prefix[0]] = append(keysByLetter[k.prefix[0]], at)
	}
}

// A client secret of Azure AD has its version behind three characters.
const (
	azureVersion = 3
	minAzure     = 30 // characters behind the version
)

// azure replaces the client secret of Azure AD that begins at i.
func azure(sc *scanner, i int) (int, bool) {
	from := i + azureVersion + len("8Q~")
	if len(sc.s) < from || sc.s[from-1] != '~' || sc.s[from-2] != 'Q' || !isDigit(sc.s[from-3]) {
		return 0, false
	}
	end := from
	for end < len(sc.s) && (isNameByte(sc.s[end]) || sc.s[end] == '~') {
		end++
	}
	if end-from < minAzure {
		return 0, false
	}
	return sc.replace(i, end, RedactedMark), true
}

// putty replaces the key file of PuTTY that begins at i, up to its check line or the end of the text.
func putty(sc *scanner, i int) (int, bool) {
	if !strings.HasPrefix(sc.s[i:], "PuTTY-User-Key-File-") {
		return 0, false
	}
	end := len(sc.s)
	if at := strings.Index(sc.s[i:], "Private-MAC:"); at >= 0 {
		end = i + at
	}
	return sc.replace(i, end, RedactedMark), true
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
