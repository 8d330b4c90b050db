package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/retrypolicy"
)

// The limits of jobs. The payload document asks for at least these.
const (
	MaxBody     = 1 << 20           // bytes of the body of any request
	maxMeta     = 64 << 10          // bytes of the meta of a job
	maxStored   = MaxBody + maxMeta // bytes of Job.Stored
	maxPriority = 100               // and -maxPriority from below

	// MaxTimeout bounds the time limit of an attempt and the length of a lease.
	MaxTimeout = 24 * time.Hour
)

// DefaultQueue is the queue of a job that names none.
const DefaultQueue = "default"

// Job is a job that a client enqueues.
type Job struct {
	ID         string // empty: the server makes one
	Type       string
	Queue      string
	Priority   int
	NotBefore  time.Time     // zero: at once, as with a time that has passed
	ExpiresAt  time.Time     // zero: never
	Pending    bool          // it waits to be activated
	Timeout    time.Duration // of an attempt; 0: none
	Visibility time.Duration // of a lease; 0: as the worker or the server says
	Policy     retrypolicy.Policy
	Unique     *Unique // nil: it need not be

	// Stored is the envelope as it is stored and digested: what the client gave, without what servers
	// set. Members that something is decided by are under the names of the specification, whatever
	// aliases the client used, relative times are absolute, and lengths of time are in options in
	// milliseconds. All else is as it was written. ParseStored reads it back.
	Stored json.RawMessage
}

// ParseJob reads the body that enqueues a job. The error is an *Error: 413 if the body or its meta is too
// long, 422 for the version and the retry policy, 400 for all else.
//
// Options may stand in options or at the top, under any of their names, but for metadata, which is not
// known at the top, and visibility_timeout_ms, which there is the server's. One that is given in two places
// is refused unless both say the same.
func ParseJob(body []byte, now time.Time) (Job, error) {
	if len(body) > MaxBody {
		return Job{}, TooLarge("", MaxBody)
	}
	return parseJob(body, now)
}

// maxBatch bounds the jobs of a batch. One transaction writes them, also on a slow server: a unique job that replaces others
// takes 10 ms and more.
const maxBatch = 200

// ParseBatch reads the body that enqueues several jobs: {"jobs":[...]}, each as ParseJob reads it. The error is an *Error
// whose field and details.index name the job.
func ParseBatch(body []byte, now time.Time) ([]Job, error) {
	r, wrong := parseBody(body, nil)
	if wrong != nil {
		return nil, wrong
	}
	r.closed("a batch", "jobs")
	raw, _ := r.ofKind("jobs", "a list")
	given := elements(raw)
	if len(given) < 1 || len(given) > maxBatch {
		r.wrong("jobs", "must be a list of 1 to %d jobs", maxBatch)
	}
	if err := r.failed(); err != nil {
		return nil, err
	}
	out := make([]Job, len(given))
	seen := map[string]bool{}
	for i, one := range given {
		var err error
		if out[i], err = parseJob(one, now); err == nil && seen[out[i].ID] {
			err = Invalid("id", "is that of another job of the batch")
		}
		if refused := (*Error)(nil); errors.As(err, &refused) {
			return nil, refused.InBatch(i)
		} else if err != nil {
			return nil, err
		}
		seen[out[i].ID] = out[i].ID != ""
	}
	return out, nil
}

// ParseStored reads Job.Stored: the same job, but for ID if the server made it.
func ParseStored(stored json.RawMessage) (Job, error) {
	if len(stored) > maxStored {
		return Job{}, TooLarge("", maxStored)
	}
	return parseJob(stored, time.Time{})
}

func parseJob(body []byte, now time.Time) (Job, error) {
	o, wrong := parseObject(body, envelopeNames{})
	if wrong != nil {
		return Job{}, wrong
	}
	p := jobParser{top: newReader(o).nullable(nullableMembers...), now: now}
	p.options, _ = p.top.inner("options")
	p.options = p.options.nullable(nullableMembers...)
	p.stored = p.top.without(func(m member) bool { return notStored[m.name] })
	p.kept = p.options.without(func(m member) bool { return resolvedOptions[m.name] })
	for _, read := range []func(){p.identity, p.destination, p.content, p.times, p.lengths, p.retry, p.unique} {
		read()
	}
	if err := p.top.failed(); err != nil {
		return Job{}, err
	}
	if len(p.kept) > 0 {
		p.stored.set("options", p.kept.encode())
	}
	p.job.Stored = p.stored.encode()
	return p.job, nil
}

type jobParser struct {
	top, options reader
	now          time.Time
	stored       object
	kept         object // the options that are stored as options
	job          Job
}

// place is where a member may be given.
type place struct {
	reader
	name string
}

// both returns the places of a member that may be given at the top and in options.
func (p *jobParser) both(names ...string) (out []place) {
	for _, r := range []reader{p.top, p.options} {
		for _, name := range names {
			out = append(out, place{r, name})
		}
	}
	return out
}

// one returns what is given in one of some places, and where. A second one that says something else is
// refused: which one a client means can't be known.
func one[T any](places []place, read func(place) (T, bool), same func(a, b T) bool) (value T, from place, given bool) {
	for _, at := range places {
		v, ok := read(at)
		switch {
		case !ok:
		case !given:
			value, from, given = v, at, true
		case !same(value, v):
			at.wrong(at.name, "contradicts %s", bounded(from.path+from.name))
		}
	}
	return value, from, given
}

func equal[T comparable](a, b T) bool { return a == b }

func sameText(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// keep stores a member as it was written at a place.
func (p *jobParser) keep(name string, from place) {
	raw, _ := from.get(from.name)
	p.stored.set(name, raw)
}

// identity reads who the job is.
func (p *jobParser) identity() {
	if v, given := p.top.text("specversion", MaxBody); given && !versionPattern.MatchString(v) {
		p.top.refuse(wrongVersion("specversion"))
	}
	if id, given := p.top.text("id", MaxBody); given {
		if !ValidID(id) {
			p.top.wrong("id", "must be a UUIDv7 in lower case, with hyphens")
		}
		p.job.ID = id
	}
	kind, given := p.top.text("type", MaxBody)
	switch {
	case !given:
		p.top.wrong("type", "is missing")
	case !validType(kind):
		p.top.wrong("type", typeProblem)
	}
	p.job.Type = kind
}

// destination reads where the job goes.
func (p *jobParser) destination() {
	queue, from, given := one(p.both("queue"), func(at place) (string, bool) { return at.text(at.name, MaxBody) }, equal[string])
	p.job.Queue = DefaultQueue
	if given {
		if !ValidQueue(queue) {
			from.wrong(from.name, queueProblem)
		}
		p.job.Queue = queue
		p.keep("queue", from)
	}
	priority, from, given := one(p.both("priority"), func(at place) (int64, bool) { return at.whole(at.name, -maxPriority, maxPriority) }, equal[int64])
	if given {
		p.job.Priority = int(priority)
		p.keep("priority", from)
	}
}

// content reads arguments, meta, tags and schema. options.metadata is merged into meta, member by member.
func (p *jobParser) content() {
	if _, given := p.top.get("args"); !given {
		p.top.wrong("args", "is missing")
	}
	p.top.ofKind("args", "a list")
	meta, _ := p.top.inner("meta")
	if more, given := p.options.inner("metadata"); given {
		merged := meta.merged(more.object, func(had, given json.RawMessage) {
			if !sameText(had, given) {
				p.options.wrong("metadata", "has a member that contradicts meta")
			}
		})
		p.stored.set("meta", merged.encode())
	}
	if raw, _ := p.stored.get("meta"); len(raw) > maxMeta {
		p.top.refuse(TooLarge("meta", maxMeta))
	}
	_, from, given := one(p.both("tags"), func(at place) (json.RawMessage, bool) {
		_, ok := at.texts(at.name, MaxBody, MaxBody)
		raw, _ := at.get(at.name)
		return raw, ok
	}, sameText)
	if given {
		p.keep("tags", from)
	}
	p.top.text("schema", MaxBody)
}

// times reads when the job may start, until when, and whether it waits to be activated.
func (p *jobParser) times() {
	read := func(at place) (moment, bool) {
		raw, given := at.ofKind(at.name, "a string")
		if !given {
			return moment{}, false
		}
		s, _ := unquote(raw)
		m, err := parseMoment(s, p.now)
		if err != nil {
			at.wrong(at.name, "%s", err)
		}
		return m, err == nil
	}
	same := func(a, b moment) bool { return a.at.Equal(b.at) }
	if m, _, given := one(p.both("scheduled_at", "delay_until"), read, same); given {
		p.job.NotBefore = m.at
		p.stored.set("scheduled_at", quoted(m.text))
	}
	if m, _, given := one(p.both("expires_at"), read, same); given {
		p.job.ExpiresAt = m.at
		p.stored.set("expires_at", quoted(m.text))
	}
	pending, _, given := one(p.both("pending"), func(at place) (bool, bool) { return at.flag(at.name) }, equal[bool])
	if p.job.Pending = pending; given {
		p.kept.set("pending", json.RawMessage("false"))
		if pending {
			p.kept.set("pending", json.RawMessage("true"))
		}
	}
}

// lengths reads the time limit of an attempt and the length of a lease. Seconds, milliseconds and
// durations are in use. A limit of 0, or none, means none of the job's own: the documents contradict each
// other about a default.
func (p *jobParser) lengths() {
	timeout, _, given := one(append(p.both("timeout_ms"), place{p.top, "timeout"}), func(at place) (time.Duration, bool) {
		if at.name == "timeout" {
			s, given := at.whole(at.name, 0, int64(MaxTimeout/time.Second))
			return time.Duration(s) * time.Second, given
		}
		return at.milliseconds(at.name, 0, MaxTimeout)
	}, equal[time.Duration])
	if p.job.Timeout = timeout; given {
		p.kept.set("timeout_ms", number(timeout.Milliseconds()))
	}
	visibility, _, given := one(append(p.both("visibility_timeout"), place{p.options, "visibility_timeout_ms"}), visibility, equal[time.Duration])
	if p.job.Visibility = visibility; given {
		p.kept.set("visibility_timeout_ms", number(visibility.Milliseconds()))
	}
}

// visibility reads the length of a lease: a number is seconds, a text a duration.
func visibility(at place) (time.Duration, bool) {
	raw, given := at.get(at.name)
	switch {
	case !given:
		return 0, false
	case at.name == "visibility_timeout_ms":
		return at.milliseconds(at.name, time.Millisecond, MaxTimeout)
	case raw[0] == '"':
		d, ok := at.duration(at.name, parseInterval, MaxTimeout)
		if ok && d < time.Millisecond {
			at.wrong(at.name, "must be at least a millisecond")
		}
		return d.Truncate(time.Millisecond), ok
	}
	s, given := at.whole(at.name, 1, int64(MaxTimeout/time.Second))
	return time.Duration(s) * time.Second, given
}

// rawObject reads a member as the text of an object.
func rawObject(at place) (json.RawMessage, bool) { return at.ofKind(at.name, "an object") }

// retry reads the retry policy.
func (p *jobParser) retry() {
	places := p.both("retry", "retry_policy")
	for i := range places {
		places[i].invalid = InvalidPolicy
	}
	raw, from, given := one(places, rawObject, sameText)
	if !given {
		p.job.Policy, _ = readPolicy(newReader(nil))
		return
	}
	r := from.within(from.name, raw)
	policy, resolved := readPolicy(r)
	p.job.Policy = policy
	p.stored.set("retry", encodeIfChanged(raw, r.object, resolved))
}

// unique reads what makes the job unique.
func (p *jobParser) unique() {
	raw, from, given := one(p.both("unique"), rawObject, sameText)
	if !given {
		return
	}
	r := from.within(from.name, raw).nullable("args_keys", "meta_keys", "period")
	unique, resolved := p.readUnique(r)
	p.job.Unique = unique
	p.stored.set("unique", encodeIfChanged(raw, r.object, resolved))
}

// encodeIfChanged returns the text of an object whose aliases were resolved; the text as it was written
// if there were none.
func encodeIfChanged(raw json.RawMessage, before, after object) json.RawMessage {
	if slices.EqualFunc(before, after, func(a, b member) bool { return a.name == b.name && bytes.Equal(a.value, b.value) }) {
		return raw
	}
	return after.encode()
}
