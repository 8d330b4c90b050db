package spec

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

type retryNames struct {
	Override json.RawMessage `json:"override"`
}

// ParseRetry reads the body that retries a dead letter: none, {} or {"override":{...}}. It returns the
// override for Override, or nil. The error is an *Error.
func ParseRetry(body []byte) (json.RawMessage, error) {
	if skipBlanks(body, 0) == len(body) {
		return nil, nil
	}
	r, wrong := parseBody(body, retryNames{})
	if wrong != nil {
		return nil, wrong
	}
	r.closed("a retry", "override")
	override, _ := r.ofKind("override", "an object")
	return override, r.failed()
}

var overrideMembers = []string{"queue", "meta", "retry", "args"}

// Overridden is the job that the retry of a dead letter with an override makes.
type Overridden struct {
	Job
	GivesQueue bool // the override has a queue: otherwise the retry stays in that of the run
	GivesRetry bool // likewise a retry policy
	// Changes says what was given, for people and audit records: names of members and of queues, no other
	// value, in at most a thousand bytes.
	Changes string
}

// Override returns the job that the retry of a dead letter makes of its stored envelope and of what its run has
// instead: meta is merged member by member, one that is null included; the retry policy is merged likewise, and
// checked as a whole; queue and args replace. Any other member is refused. What makes the job unique is computed
// anew. Without an override the job is the stored one.
//
// The error is an *Error: 422 for the merged policy, 413 for what has become too long, 400 for all else.
func Override(stored, override json.RawMessage, run RunSettings) (Overridden, error) {
	job, err := ParseStored(stored)
	if err != nil || len(override) == 0 {
		return Overridden{Job: job}, err
	}
	given, wrong := parseObject(override, nil)
	if wrong != nil {
		return Overridden{}, wrong
	}
	if len(given) == 0 {
		return Overridden{Job: job}, nil
	}
	o := overrider{reader: newReader(given), stored: members(job.Stored), run: run}
	o.path = "override."
	o.closed("an override", overrideMembers...)
	run.over(&o.stored)
	for _, apply := range []func(){o.applyQueue, o.applyMeta, o.applyRetry, o.applyArgs} {
		apply()
	}
	if err := o.failed(); err != nil {
		return Overridden{}, err
	}
	after := o.stored.encode()
	if len(after) > maxStored {
		return Overridden{}, TooLarge("override", maxStored)
	}
	if o.job.Job, err = ParseStored(after); err != nil {
		return Overridden{}, err
	}
	if o.keepsJitter && o.job.Policy.Jitter > 0 {
		o.job.Policy.Jitter = run.Policy.Jitter
	}
	o.job.Changes = strings.Join(o.changes, "; ")
	return o.job, nil
}

type overrider struct {
	reader
	stored      object
	run         RunSettings
	job         Overridden
	keepsJitter bool // the share of the run, which an envelope can't say
	changes     []string
}

func (o *overrider) applyQueue() {
	queue, given := o.text("queue", MaxBody)
	if !given {
		return
	}
	if !ValidQueue(queue) {
		o.wrong("queue", queueProblem)
		return
	}
	before := queueOf(o.stored)
	o.stored.set("queue", quoted(queue))
	o.job.GivesQueue = true
	o.changes = append(o.changes, "queue "+before+" to "+queue)
}

func (o *overrider) applyMeta() {
	raw, given := o.ofKind("meta", "an object")
	if !given {
		return
	}
	before, _ := o.stored.get("meta")
	merged := members(before).merged(members(raw), nil).encode()
	if len(merged) > maxMeta {
		o.refuse(TooLarge("override.meta", maxMeta))
	}
	o.stored.set("meta", merged)
	o.changes = append(o.changes, "meta "+namesOf(members(raw)))
}

func (o *overrider) applyRetry() {
	r := o.reader
	r.invalid = InvalidPolicy
	raw, given := r.ofKind("retry", "an object")
	if !given {
		return
	}
	r = r.within("retry", raw)
	r.closed("a retry policy", policyMembers...)
	before, _ := o.stored.get("retry")
	r.object = members(before).merged(resolvePolicy(r), nil)
	_, resolved := readPolicy(r)
	o.stored.set("retry", resolved.encode())
	_, jitter := members(raw).get("jitter")
	o.job.GivesRetry, o.keepsJitter = true, !jitter && o.run.Policy != nil
	o.changes = append(o.changes, "retry "+namesOf(members(raw)))
}

// resolvePolicy returns the members of a part of a retry policy under the names of the specification,
// since an older name would stand beside the one that it is to replace.
func resolvePolicy(r reader) object {
	resolved := slices.Clone(r.object)
	for _, name := range []string{"initial_interval", "max_interval"} {
		length(r, &resolved, name, parseInterval, maxInterval)
	}
	backoff(r, &resolved)
	return resolved
}

func (o *overrider) applyArgs() {
	raw, given := o.ofKind("args", "a list")
	if !given {
		return
	}
	o.stored.set("args", raw)
	o.changes = append(o.changes, "args")
}

// maxNames bounds the names that a change shows.
const maxNames = 3

// plainName returns the name of a member as a receipt may have it: quoted if it is no plain text.
func plainName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		name = strconv.QuoteToASCII(name)
	}
	return strictjson.Name(name)
}

// namesOf returns the names of some members.
func namesOf(o object) string {
	names := make([]string, 0, maxNames)
	for _, m := range o[:min(len(o), maxNames)] {
		names = append(names, plainName(m.name))
	}
	out := "(" + strings.Join(names, ", ")
	if more := len(o) - maxNames; more > 0 {
		out += " and " + strconv.Itoa(more) + " more"
	}
	return out + ")"
}
