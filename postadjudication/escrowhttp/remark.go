package escrowhttp

import (
	"encoding/json"
	"strings"
	"unicode"
)

// errorText is what the body of a refusal says: its error and detail when it is a
// JSON object that has them, else its text.
func errorText(raw []byte) string {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return oneLine(string(raw))
	}
	name, detail := textOrMessage(object["error"]), textOrMessage(object["detail"])
	switch {
	case name == "" && detail == "":
		return oneLine(string(raw))
	case name == "" || name == detail:
		return oneLine(detail)
	case detail == "":
		return oneLine(name)
	}
	return oneLine(name + ": " + detail)
}

// textOrMessage is a JSON string, or the message of an object that has one.
func textOrMessage(raw json.RawMessage) string {
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

// oneLine makes one line out of hostile text. It cuts nothing: secrets are taken out of a
// whole text by who keeps it, and only then it is cut. Half a card number is none that
// anybody recognises.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Cf, r): // shows nothing, or turns the order of what is read
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}
