package signature

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// MaxText is the maximum length of a signature in bytes, maxConstant that of the text for searching.
const (
	MaxText     = 200
	maxConstant = 1024
)

// Gap replaces each removed part in Constant. No text that people search for contains
// it.
const Gap = "\x01"

// gap replaces each removed part in Text.
const gap = "#"

// Signature is the common part of failures of one cause.
type Signature struct {
	// Text is the signature as shown to people and accepted from them.
	Text string
	// Constant is the message in lower case with Gap for each removed part.
	Constant string
	// Whole reports that no part was removed: all messages of the signature are equal to
	// Constant.
	Whole bool
}

// Of returns the signature of an error with a type and a message.
func Of(errorType, message string) Signature {
	pattern := patternOf(message)
	text := strings.Join(strings.Fields(strings.ReplaceAll(pattern, Gap, gap)), " ")
	switch {
	case errorType == "":
	case text == "":
		text = errorType
	default:
		text = errorType + ": " + text
	}
	constant := strings.ToLower(pattern)
	cut := truncate(constant, maxConstant)
	return Signature{
		Text: truncate(text, MaxText), Constant: cut,
		Whole: len(cut) == len(constant) && !strings.Contains(pattern, Gap),
	}
}

// patternOf returns a message with Gap for each part that may differ. In JSON it keeps the names of members, and those
// values that are words of a program: they tell one cause from another.
func patternOf(message string) string {
	var out strings.Builder
	end := 0
	for _, at := range variable.FindAllStringIndex(message, -1) {
		before, found, after := message[:at[0]], message[at[0]:at[1]], message[at[1]:]
		out.WriteString(message[end:at[0]])
		if end = at[1]; isMemberName(before, found, after) || isWordOfMember(before, found) {
			out.WriteString(found)
		} else {
			out.WriteString(replaceVariable(found))
		}
	}
	return out.String() + message[end:]
}

// isMemberName reports whether quoted text is the name of a member of a JSON object.
func isMemberName(before, found, after string) bool {
	before, after = strings.TrimRight(before, " "), strings.TrimLeft(after, " ")
	return isQuoted(found) && strings.HasPrefix(after, ":") && (strings.HasSuffix(before, "{") || strings.HasSuffix(before, ","))
}

// isWordOfMember reports whether quoted text is the value of a member of a JSON object, and of the form that programs give
// to codes: a short identifier in one case, without a digit. Names of persons are written otherwise.
func isWordOfMember(before, found string) bool {
	name, isValue := strings.CutSuffix(strings.TrimRight(before, " "), ":")
	return isValue && isQuoted(found) && strings.HasSuffix(strings.TrimRight(name, " "), `"`) && identifier.MatchString(found[1:len(found)-1])
}

func isQuoted(found string) bool { return len(found) > 2 && found[0] == '"' }

var identifier = regexp.MustCompile(`^(?:[a-z][a-z_.-]{0,39}|[A-Z][A-Z_.-]{0,39})$`)

// variable matches the parts that may differ, from left to right: addresses, quoted text,
// times, and words that have a digit or are long runs of hex.
var variable = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]+` +
	"|\"[^\"\n]*\"|`[^`\n]*`|«[^»\n]*»|“[^”\n]*”" + `|(?:^|[\s(\[{=:,])'[^'\n]*'` +
	`|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?` +
	`|\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?` +
	`|[\w.+-]+@[\w-]+(?:\.[\w-]+)+` +
	`|[A-Fa-f0-9]{8}-(?:[A-Fa-f0-9]{4}-){3}[A-Fa-f0-9]{12}` +
	`|[+-]?\d+(?:[.,]\d+)*%?(?:[A-Za-zµ]\w*)?` +
	`|[\p{L}\p{N}]+`)

func replaceVariable(found string) string {
	first, _ := utf8.DecodeRuneInString(found)
	switch {
	case strings.ContainsRune("\"`", first) && len(found) > 1:
		return found[:1] + Gap + found[:1]
	case first == '«':
		return "«" + Gap + "»"
	case first == '“':
		return "“" + Gap + "”"
	case strings.HasSuffix(found, "'"):
		return found[:strings.IndexByte(found, '\'')] + "'" + Gap + "'"
	case strings.Contains(found, "://"):
		return shortenURL(found)
	case strings.Contains(found, "@"):
		return Gap
	}
	return replaceWord(found)
}

var (
	digits   = regexp.MustCompile(`\d`)
	hex      = regexp.MustCompile(`^[A-Fa-f0-9]+$`)
	numbered = regexp.MustCompile(`^(\p{L}+)\d+$`)
)

// The minimum lengths of runs of hex that count as ids: with a digit in them, and without.
const (
	shortHex = 6
	longHex  = 16
)

// replaceWord removes a word that has a digit. It keeps the name before a number, as in
// node7.
func replaceWord(w string) string {
	isHex := hex.MatchString(w)
	if !digits.MatchString(w) {
		if isHex && len(w) >= longHex {
			return Gap
		}
		return w
	}
	if isHex && len(w) >= shortHex {
		return Gap
	}
	if m := numbered.FindStringSubmatch(w); m != nil {
		return m[1] + Gap
	}
	return Gap
}

// shortenURL keeps the scheme and host of a URL, and those parts of its path that have no
// digit.
func shortenURL(found string) string {
	scheme, rest, _ := strings.Cut(found, "://")
	rest, _, asks := strings.Cut(rest, "?")
	parts := strings.Split(rest, "/")
	for i, p := range parts {
		switch {
		case i == 0:
			if _, host, named := strings.Cut(p, "@"); named {
				p = Gap + "@" + host
			}
			host, _, port := strings.Cut(p, ":")
			if port {
				p = host + ":" + Gap
			}
			parts[i] = p
		case digits.MatchString(p) || hex.MatchString(p) && len(p) >= longHex:
			parts[i] = Gap
		}
	}
	out := scheme + "://" + strings.Join(parts, "/")
	if asks {
		out += "?" + Gap
	}
	return out
}

// truncate cuts at a rune boundary.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
