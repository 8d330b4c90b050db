package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

// Create is the body of POST /v1/runs.
type Create struct {
	Workflow string
	Inputs   json.RawMessage // an object
	Tenant   string          // empty: not given
}

// ParseCreate reads the body of POST /v1/runs. Options of runs that this host does not keep are refused
// unless they are empty. The error is an *Error.
func ParseCreate(body []byte) (Create, error) {
	var raw struct {
		Workflow     *string         `json:"workflowId"`
		Inputs       json.RawMessage `json:"inputs"`
		Tenant       string          `json:"tenantId"`
		Scope        string          `json:"scopeId"`
		Callback     string          `json:"callbackUrl"`
		Configurable json.RawMessage `json:"configurable"`
		Tags         json.RawMessage `json:"tags"`
		Metadata     json.RawMessage `json:"metadata"`
	}
	known := []string{"workflowId", "inputs", "tenantId", "scopeId", "callbackUrl", "configurable", "tags", "metadata"}
	if err := decode(body, known, &raw); err != nil {
		return Create{}, err
	}
	problems := emptyOnly("", map[string]json.RawMessage{"configurable": raw.Configurable, "tags": raw.Tags, "metadata": raw.Metadata})
	switch {
	case raw.Workflow == nil || *raw.Workflow == "":
		problems = append(problems, Problem{"workflowId", "is required"})
	case raw.Scope != "":
		problems = append(problems, Problem{"scopeId", "is not supported: a key has one tenant, without scopes"})
	case raw.Callback != "":
		problems = append(problems, Problem{"callbackUrl", "is not supported: read the events of the run"})
	}
	if raw.Inputs == nil {
		raw.Inputs = json.RawMessage("{}")
	}
	if strictjson.Kind(raw.Inputs) != "an object" {
		problems = append(problems, Problem{"inputs", "must be an object"})
	}
	if len(problems) > 0 {
		return Create{}, Invalid(problems...)
	}
	return Create{Workflow: *raw.Workflow, Inputs: raw.Inputs, Tenant: raw.Tenant}, nil
}

// ForkMode says how a fork continues its source.
type ForkMode string

// The modes of forks.
const (
	Branch     ForkMode = "branch" // executes again, effects included
	ReplayMode ForkMode = "replay" // reproduces recorded outcomes; this host does not
)

// Fork is the body of POST /v1/runs/{runId}:fork.
type Fork struct {
	Mode    ForkMode
	FromSeq int
}

// ParseFork reads the body of a fork. Members that OpenWOP does not name are refused. The error is an *Error.
func ParseFork(body []byte) (Fork, error) {
	var raw struct {
		Mode    *string         `json:"mode"`
		FromSeq json.RawMessage `json:"fromSeq"`
		Overlay json.RawMessage `json:"runOptionsOverlay"`
	}
	if err := decode(body, []string{"mode", "fromSeq", "runOptionsOverlay"}, &raw); err != nil {
		return Fork{}, err
	}
	var out Fork
	var problems []Problem
	switch {
	case raw.Mode == nil:
		problems = append(problems, Problem{"mode", "is required: branch"})
	case *raw.Mode != string(Branch) && *raw.Mode != string(ReplayMode):
		problems = append(problems, Problem{"mode", "must be branch or replay"})
	default:
		out.Mode = ForkMode(*raw.Mode)
	}
	switch from, err := strconv.Atoi(string(raw.FromSeq)); {
	case raw.FromSeq == nil && out.Mode == ReplayMode:
	case raw.FromSeq == nil:
		problems = append(problems, Problem{"fromSeq", "is required: the sequence of the first event that is not kept, 0 for all"})
	case err != nil || from < 0:
		problems = append(problems, Problem{"fromSeq", "must be an integer of at least 0"})
	default:
		out.FromSeq = from
	}
	problems = append(problems, overlayProblems(raw.Overlay)...)
	if len(problems) > 0 {
		return Fork{}, Invalid(problems...)
	}
	return out, nil
}

// overlayProblems returns what is wrong with the options of a fork. A fork keeps the inputs, the amount
// and the operation key of its source, so none may be given.
func overlayProblems(overlay json.RawMessage) []Problem {
	const field = "runOptionsOverlay"
	if overlay == nil {
		return nil
	}
	var raw struct {
		Configurable json.RawMessage `json:"configurable"`
		Tags         json.RawMessage `json:"tags"`
		Metadata     json.RawMessage `json:"metadata"`
	}
	if strictjson.Kind(overlay) != "an object" {
		return []Problem{{field, "must be an object"}}
	}
	if err := decode(overlay, []string{"configurable", "tags", "metadata"}, &raw); err != nil {
		var wrong *Error
		if errors.As(err, &wrong) {
			return []Problem{{field, wrong.Message}}
		}
		return []Problem{{field, "can't be read"}}
	}
	return emptyOnly(field+".", map[string]json.RawMessage{"configurable": raw.Configurable, "tags": raw.Tags, "metadata": raw.Metadata})
}

// emptyOnly returns a problem for each value that is neither absent nor empty.
func emptyOnly(prefix string, values map[string]json.RawMessage) (out []Problem) {
	for name, value := range values {
		empty := "{}"
		if name == "tags" {
			empty = "[]"
		}
		if text := strings.Join(strings.Fields(string(value)), ""); text != "" && text != empty {
			out = append(out, Problem{prefix + name, "is not supported: leave it out or empty"})
		}
	}
	slices.SortFunc(out, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	return out
}

// maxReason is the maximum length of a reason in bytes.
const maxReason = 1000

// ParseCancel reads the body of a cancel, which may be empty. It returns the reason, which may be empty.
// The error is an *Error.
func ParseCancel(body []byte) (reason string, err error) {
	if len(body) == 0 {
		return "", nil
	}
	var raw struct {
		Reason string `json:"reason"`
	}
	if err := decode(body, []string{"reason"}, &raw); err != nil {
		return "", err
	}
	if len(raw.Reason) > maxReason {
		return "", Invalid(Problem{"reason", fmt.Sprintf("must be at most %d bytes", maxReason)})
	}
	return raw.Reason, nil
}

// decode decodes an object that has no members but the known ones. A member that is null is refused.
func decode(body []byte, known []string, into any) error {
	if err := strictjson.CheckObject(body); err != nil {
		return invalidJSON(err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return invalidJSON(err)
	}
	var problems []Problem
	for name, value := range members {
		switch {
		case !slices.Contains(known, name):
			problems = append(problems, Problem{strictjson.Name(name), "is not known: the members are " + strings.Join(known, ", ")})
		case string(value) == "null":
			problems = append(problems, Problem{name, "must not be null: leave it out"})
		}
	}
	if len(problems) > 0 {
		slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
		return Invalid(problems...)
	}
	if err := strictjson.Decode(body, into); err != nil {
		return invalidJSON(err)
	}
	return nil
}

func invalidJSON(err error) *Error {
	var strict *strictjson.Error
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &strict):
		return Invalid(Problem{strict.Field, strict.Problem})
	case errors.As(err, &kind):
		return Invalid(Problem{kind.Field, "has the wrong type"})
	}
	return Invalid(Problem{"", "the body can't be read"})
}

// Poll is what GET /v1/runs/{runId}/events/poll asks for.
type Poll struct {
	After   int // events with a greater sequence; -1: all
	Timeout time.Duration
}

// The times that a poll may wait.
const (
	DefaultPoll = 30 * time.Second
	MaxPoll     = 60 * time.Second
)

// ParsePoll reads the parameters of a poll. The error is an *Error.
func ParsePoll(values url.Values) (Poll, error) {
	out := Poll{After: -1, Timeout: DefaultPoll}
	problems := unknownParameters(values, "lastSequence", "timeout")
	if text := values.Get("lastSequence"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < -1 {
			problems = append(problems, Problem{"lastSequence", "must be the sequence of an event"})
		}
		out.After = n
	}
	if text := values.Get("timeout"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > int(MaxPoll/time.Second) {
			problems = append(problems, Problem{"timeout", fmt.Sprintf("must be 1 to %d seconds", int(MaxPoll/time.Second))})
		}
		out.Timeout = time.Duration(n) * time.Second
	}
	if len(problems) > 0 {
		return Poll{}, Invalid(problems...)
	}
	return out, nil
}

// Stream is what GET /v1/runs/{runId}/events asks for.
type Stream struct {
	Modes  []Mode
	After  int           // events with a greater sequence; -1: all
	Buffer time.Duration // how long events are collected for one batch; 0: each is sent alone
}

// maxBuffer is how long events are collected at most. OpenWOP clamps longer times to it.
const maxBuffer = 5000 * time.Millisecond

// ParseStream reads the parameters of a stream and its header Last-Event-ID. The error is an *Error.
func ParseStream(values url.Values, lastEventID string) (Stream, error) {
	modes, err := ParseModes(values.Get("streamMode"))
	if err != nil {
		return Stream{}, err
	}
	out := Stream{Modes: modes, After: -1}
	problems := unknownParameters(values, "streamMode", "bufferMs")
	if text := values.Get("bufferMs"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			problems = append(problems, Problem{"bufferMs", "must be 0 to 5000"})
		}
		out.Buffer = min(maxBuffer, time.Duration(min(n, 5000))*time.Millisecond)
	}
	if lastEventID != "" {
		n, err := strconv.Atoi(lastEventID)
		if err != nil || n < 0 {
			problems = append(problems, Problem{"Last-Event-ID", "must be the id of an event of this stream"})
		}
		out.After = n
	}
	if len(problems) > 0 {
		return Stream{}, Invalid(problems...)
	}
	return out, nil
}

func unknownParameters(values url.Values, known ...string) (out []Problem) {
	for name := range values {
		if !slices.Contains(known, name) {
			out = append(out, Problem{strictjson.Name(name), "is no parameter: the parameters are " + strings.Join(known, ", ")})
		}
	}
	slices.SortFunc(out, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	return out
}

// CheckKey refuses an Idempotency-Key that is not URL-safe or too long. The error is an *Error.
func CheckKey(key string) error {
	safe := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._~", c)
	}
	if key == "" || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return !safe(c) }) {
		return Invalid(Problem{"Idempotency-Key", "must be 1 to 255 letters, digits, -, ., _ and ~"})
	}
	return nil
}

// ParseExhaust reads the body of the test endpoint that dead-letters a run. The error is an *Error.
func ParseExhaust(body []byte) error {
	var raw struct {
		Scenario string `json:"scenario"`
	}
	if err := decode(body, []string{"scenario"}, &raw); err != nil {
		return err
	}
	if raw.Scenario != "exhaust-retries" && raw.Scenario != "fork-after-dead-letter" {
		return Invalid(Problem{"scenario", "must be exhaust-retries or fork-after-dead-letter"})
	}
	return nil
}
