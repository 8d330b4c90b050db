package spec

import (
	"encoding/json"
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
	Result json.RawMessage // any JSON, as it was written; nil: none, or null
}

// ParseAck reads the body of an ack. A job_id that is no valid id is not refused here: no job is found by it. The
// error is an *Error; 413 if the result is longer than 64 KiB.
func ParseAck(body []byte) (Ack, error) {
	r, wrong := parseBody(body, answerNames{})
	if wrong != nil {
		return Ack{}, wrong
	}
	a := Ack{Answer: r.answer()}
	if raw, given := r.get("result"); given && !isNull(raw) {
		if len(raw) > maxResult {
			r.refuse(TooLarge("result", maxResult))
		}
		a.Result = raw
	}
	return a, r.failed()
}
