package escrowhttp

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMessage bounds a message, in bytes. It is far over what evidence keeps: secrets are
// taken out of a whole text, and only then it is cut. Half a card number is none that
// anybody recognises.
const maxMessage = 64 << 10

// remark is what the body of a refusal says: its error and detail when it is a
// JSON object that has them, else its text.
func remark(raw []byte) string {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return clip(string(raw))
	}
	name, detail := words(object["error"]), words(object["detail"])
	switch {
	case name == "" && detail == "":
		return clip(string(raw))
	case name == "" || name == detail:
		return clip(detail)
	case detail == "":
		return clip(name)
	}
	return clip(name + ": " + detail)
}

// words is a JSON string, or the message of an object that has one.
func words(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var object struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(raw, &object) == nil {
		return object.Message
	}
	return ""
}

// clip makes one line of at most maxMessage bytes out of hostile text.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.TrimSpace(s)
	if len(s) <= maxMessage {
		return s
	}
	end := maxMessage
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}
