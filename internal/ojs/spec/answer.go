package spec

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
)

// Answer says which job a worker answers for.
type Answer struct {
	JobID   string // as it was given: not always an id
	Worker  string // empty: whoever holds it
	Attempt int    // 0: it does not say; an addition of ours, since the wire has no name for a lease
}

type answerNames struct {
	JobID   json.RawMessage `json:"job_id"`
	Worker  json.RawMessage `json:"worker_id"`
	Attempt json.RawMessage `json:"attempt"`
	Result  json.RawMessage `json:"result"`
	Requeue json.RawMessage `json:"requeue"`
	Error   struct {
		Code      json.RawMessage `json:"code"`
		Type      json.RawMessage `json:"type"`
		Message   json.RawMessage `json:"message"`
		Retryable json.RawMessage `json:"retryable"`
		Details   json.RawMessage `json:"details"`
		Backtrace json.RawMessage `json:"backtrace"`
	} `json:"error"`
}

func (r reader) answer() (a Answer) {
	id, given := r.text("job_id", MaxBody)
	if !given {
		r.wrong("job_id", "is missing")
	}
	attempt, _ := r.whole("attempt", 1, 1<<31-1)
	return Answer{JobID: id, Worker: r.worker(), Attempt: int(attempt)}
}

// Ack is a success.
type Ack struct {
	Answer
	Result   json.RawMessage // any JSON, as it was written; nil: none, or null
	Replaced bool            // characters that no store keeps were replaced in the body
}

// ParseAck reads the body of an ack. A job_id that is no valid id is not refused here: no job is found by it. Nor is a result
// that is longer than 64 KiB, or has characters that no store keeps: the job is done. The error is an *Error.
func ParseAck(body []byte) (Ack, error) {
	kept := storable(body)
	r, wrong := parseBody(kept, answerNames{})
	if wrong != nil {
		return Ack{}, wrong
	}
	a := Ack{Answer: r.answer(), Replaced: !bytes.Equal(kept, body)}
	if raw, given := r.get("result"); given && !isNull(raw) {
		a.Result = raw
	}
	return a, r.failed()
}

// storable returns a body with U+FFFD in place of what no store keeps: U+0000, half of a surrogate pair, and bytes that are not
// UTF-8. Texts that were cut, and outputs of programs, have such; what a worker did is not done again for that.
func storable(body []byte) []byte {
	body = bytes.ToValidUTF8(body, []byte("\uFFFD"))
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		unit, ok := codeUnit(body[i:])
		if low, paired := codeUnit(body[min(i+6, len(body)):]); ok && paired && utf16.DecodeRune(unit, low) != '\uFFFD' {
			i += 11
			continue
		}
		if ok && (unit == 0 || utf16.IsSurrogate(unit)) {
			copy(body[i:], `\ufffd`)
		}
		i++ // past the escaped character
	}
	return body
}

// codeUnit reads an escape of a code unit at the beginning of text.
func codeUnit(text []byte) (unit rune, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}
