package spec

import (
	"encoding/json"
	"strings"
)

// The limits of failures.
const (
	maxFrames    = 50  // of a backtrace; more are cut off
	maxErrorType = 255 // bytes of a type or code of an error
)

// Order is what the code of an error orders, whatever the policy of the job says.
type Order string

// The orders. A code RETRY orders nothing: the policy and its non-retryable errors still apply, by the
// retry document and against the catalogue of errors.
const (
	ByPolicy        Order = ""
	OrderDiscard    Order = "discard"     // DISCARD and FAIL: the job is discarded, and is no dead letter
	OrderDeadLetter Order = "dead_letter" // DEAD_LETTER: the job is a dead letter
)

var orders = map[string]Order{"DISCARD": OrderDiscard, "FAIL": OrderDiscard, "DEAD_LETTER": OrderDeadLetter}

// Nack is a failure.
type Nack struct {
	Answer
	Requeue   bool            // the worker hands the job back: the attempt does not count
	Code      string          // never empty
	Type      string          // what policies match: the type, else details.error_class, else the code
	Message   string          // never empty; not cut and not redacted
	Retryable bool            // whether another attempt may help
	Details   json.RawMessage // an object as it was written; nil: none
	Backtrace []string        // at most 50 frames
	Order     Order
}

// ParseNack reads the body of a nack. error must be an object, also with requeue; all its members may be
// missing, since clients leave out one or the other: code is handler_error then, message the code, and
// retryable true. A code or type is cut after 255 bytes, and characters that no store keeps are replaced: the failure
// is on record, whatever form it is told in. The error is an *Error.
func ParseNack(body []byte) (Nack, error) {
	r, wrong := parseBody(storable(body), answerNames{})
	if wrong != nil {
		return Nack{}, wrong
	}
	n := Nack{Answer: r.answer(), Retryable: true}
	n.Requeue, _ = r.flag("requeue")
	e, given := r.inner("error")
	if !given {
		r.wrong("error", "is missing")
	}
	n.Code = e.cutText("code", maxErrorType)
	if n.Code == "" {
		n.Code = codeHandlerError
	}
	n.Details, _ = e.ofKind("details", "an object")
	if n.Type = e.cutText("type", maxErrorType); n.Type == "" {
		n.Type = n.errorClass()
	}
	if n.Message, _ = e.text("message", MaxBody); n.Message == "" {
		n.Message = n.Code
	}
	if retryable, given := e.flag("retryable"); given {
		n.Retryable = retryable
	}
	n.Backtrace = e.frames()
	n.Order = orders[n.Code]
	return n, r.failed()
}

// errorClass returns the type of an error that names none. It is never guessed from the message.
func (n Nack) errorClass() string {
	raw, _ := members(n.Details).get("error_class")
	if class, ok := unquote(raw); ok && class != "" && len(class) <= maxErrorType {
		return class
	}
	return n.Code
}

// cutText reads a string, of which it keeps the first bytes.
func (r reader) cutText(name string, most int) string {
	s, _ := r.text(name, MaxBody)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// frames reads the backtrace, of which empty frames and those after the fiftieth are left out. A string has a frame a line.
func (r reader) frames() (frames []string) {
	raw, given := r.get("backtrace")
	if text, isText := unquote(raw); given && isText {
		for frame := range strings.Lines(text) {
			if frame = strings.TrimSpace(frame); frame != "" && len(frames) < maxFrames {
				frames = append(frames, frame)
			}
		}
		return frames
	}
	raw, _ = r.ofKind("backtrace", "a list")
	for _, one := range elements(raw) {
		frame, ok := unquote(one)
		if !ok {
			r.wrong("backtrace", "must be a list of strings")
			return nil
		}
		if frame != "" && len(frames) < maxFrames {
			frames = append(frames, frame)
		}
	}
	return frames
}
