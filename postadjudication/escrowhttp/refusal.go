package escrowhttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
)

// codeForm is the form of a code: a number, a word, or several that are joined as in an identifier or a URI. A longer one
// would be cut in its receipt, to what another code may have, too.
var codeForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/#?&=%~-]{0,63}$`)

// refusalOf returns the code and the text of a refusal. Those of a JSON object are in its members, as APIs and problem+json
// (RFC 9457) name them; the text begins with the code, so that refusals of other causes are other texts, but with the
// title where the code is a URI. Without such members the text is the whole body. code is empty if the body states none.
func refusalOf(raw []byte) (code, text string) {
	var object map[string]json.RawMessage
	if json.Unmarshal(bytes.TrimPrefix(raw, byteOrderMark), &object) != nil {
		return "", oneLine(string(raw))
	}
	var within map[string]json.RawMessage // of an error that is an object
	if json.Unmarshal(object["error"], &within) != nil {
		within = nil
	}
	name := firstText(object["code"], within["code"], object["error"], within["type"], problemType(object["type"]))
	if codeForm.MatchString(name) {
		code = name
	}
	title := firstText(object["title"])
	if name == "" || title != "" && strings.Contains(name, "://") {
		name = title
	}
	detail := firstText(object["detail"], object["message"], within["message"])
	switch {
	case name == "" && detail == "":
		return "", oneLine(string(raw))
	case detail == "":
		detail = title
	}
	if name == "" || detail == "" || name == detail {
		return code, oneLine(cmp.Or(name, detail))
	}
	return code, oneLine(name + ": " + detail)
}

// problemType is the type of a problem, unless that says nothing.
func problemType(raw json.RawMessage) json.RawMessage {
	if firstText(raw) == "about:blank" {
		return nil
	}
	return raw
}

// firstText returns the first value that is a text, or a number, which it returns as it is written.
func firstText(values ...json.RawMessage) string {
	for _, raw := range values {
		var text string
		if json.Unmarshal(raw, &text) == nil && strings.TrimSpace(text) != "" {
			return text
		}
		var number json.Number
		if json.Unmarshal(raw, &number) == nil && number != "" {
			return number.String()
		}
	}
	return ""
}

// oneLine turns hostile text into one line. It does not truncate: the caller that stores the
// text first removes secrets from all of it and then truncates, since half a card number would
// not be recognised.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Cf, r): // invisible, or reorders text
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}
