package spec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Event is an event on the wire. It is like CloudEvents, and not CloudEvents.
type Event struct {
	SpecVersion string         `json:"specversion"`
	ID          string         `json:"id"`
	Type        string         `json:"type"`
	Source      string         `json:"source"`
	Time        string         `json:"time"`
	Subject     string         `json:"subject,omitempty"` // the id of the job; empty: the event is of many
	Data        map[string]any `json:"data"`
}

// eventTypes are the types of the events that a server of this package emits.
var eventTypes = []string{
	"job.enqueued", "job.started", "job.completed", "job.failed", "job.retrying", "job.discarded", "job.cancelled", "job.expired",
	"dead_letter.added", "dead_letter.retried", "dead_letter.replayed", "dead_letter.pruned", "dead_letter.deleted",
}

const (
	eventPrefix = "evt_"
	maxPosition = 1<<50 - 1 // in an event id
	// LastPlace is the last place among the events of a receipt that an event id holds.
	LastPlace = 1<<4 - 1
)

// EventID returns the id of an event: a UUIDv7 whose time is that of its receipt, and whose other bits hold
// its position in the order of events, its place among those of its receipt, and eight bits of a hash of
// both, so that a mistyped id is noticed. It is the same at every reading, and a reader that continues after
// it needs no search.
func EventID(at time.Time, position int64, place int) string {
	var id uuid.UUID
	ms := max(0, at.UnixMilli())
	binary.BigEndian.PutUint64(id[:8], uint64(ms)<<16)
	low := uint64(position&maxPosition)<<4 | uint64(place&LastPlace) // 54 bits
	check := eventCheck(ms, low)
	id[6], id[7] = 0x70|check>>4, check<<4
	binary.BigEndian.PutUint64(id[8:], low)
	id[8] = id[8]&0x3f | 0x80
	return eventPrefix + id.String()
}

func eventCheck(ms int64, low uint64) byte {
	return sha256.Sum256(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(ms)), low))[0]
}

// ParseEventID returns the position and the place in an event id.
func ParseEventID(s string) (position int64, place int, err error) {
	wrong := Invalid("after", "must be the id of an event")
	text, is := strings.CutPrefix(s, eventPrefix)
	if !is || len(text) != 36 {
		return 0, 0, wrong
	}
	id, parseErr := uuid.Parse(text)
	if parseErr != nil || id.String() != text || id.Version() != 7 {
		return 0, 0, wrong
	}
	ms := int64(binary.BigEndian.Uint64(id[:8]) >> 16)
	low := binary.BigEndian.Uint64(id[8:]) & (1<<62 - 1)
	if low>>54 != 0 || EventID(time.UnixMilli(ms), int64(low>>4), int(low&LastPlace)) != s {
		return 0, 0, wrong
	}
	return int64(low >> 4), int(low & LastPlace), nil
}

// EventQuery is which events are wanted.
type EventQuery struct {
	Types    []string // empty: all
	Queues   []string
	JobTypes []string
	After    int64 // position of the event before; -1: from the first
	Place    int   // its place
	Limit    int
}

// ParseEvents reads the parameters of the list of events. The error is an *Error.
func ParseEvents(values url.Values) (EventQuery, error) {
	q := newQuery(values)
	out := EventQuery{After: -1, Types: q.texts("types"), Queues: q.texts("queues"), JobTypes: q.texts("job_types"), Limit: q.whole("limit", 100, 1, 1000)}
	for _, t := range out.Types {
		if !slices.Contains(eventTypes, t) && !slices.Contains(otherEventTypes, t) {
			q.wrong("types", "must be types of events")
		}
	}
	if raw := q.text("after", 64); raw != "" {
		position, place, err := ParseEventID(raw)
		if err != nil {
			q.wrong("after", "must be the id of an event")
		}
		out.After, out.Place = position, place
	}
	return out, q.finish()
}

// texts reads a list with commas between its entries.
func (q *query) texts(name string) []string {
	raw := q.text(name, 4096)
	if raw == "" {
		return nil
	}
	all := strings.Split(raw, ",")
	if slices.Contains(all, "") {
		q.wrong(name, "has an empty entry")
	}
	return all
}

// otherEventTypes are types that the specification has and this server never emits. A reader may name them.
var otherEventTypes = []string{
	"job.scheduled", "job.progress", "job.dead_lettered", "job.retry_exhausted", "queue.paused", "queue.resumed", "worker.started", "worker.stopped", "worker.heartbeat",
	"workflow.started", "workflow.completed", "workflow.failed", "cron.triggered", "cron.skipped", "job.alert",
}

// Wants reports whether an event is wanted.
func (q EventQuery) Wants(e Event) bool {
	in := func(list []string, name string) bool {
		v, _ := e.Data[name].(string)
		return len(list) == 0 || slices.Contains(list, v)
	}
	return (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) && in(q.Queues, "queue") && in(q.JobTypes, "job_type")
}

// EventPage is the answer to a list of events.
type EventPage struct {
	Events  []Event `json:"events"`
	Cursor  string  `json:"cursor,omitempty"`
	HasMore bool    `json:"has_more"`
}

// MarshalJSON writes a page without events as an empty list.
func (p EventPage) MarshalJSON() ([]byte, error) {
	type plain EventPage
	if p.Events == nil {
		p.Events = []Event{}
	}
	return json.Marshal(plain(p))
}
