package spec

import (
	"encoding/json"
	"slices"
	"time"
)

// Unique is what makes a job unique. Another job conflicts with it if that has the same fingerprint, still
// holds it, and its state is one of States. This is checked only when the job is enqueued.
type Unique struct {
	Fingerprint [32]byte
	Period      time.Duration // how long after its creation the job holds its fingerprint; 0: without end
	States      []State
	OnConflict  OnConflict
}

// OnConflict is what happens to a unique job while another one stands in its way.
type OnConflict string

// What happens. An active job is never replaced: the new one is refused as with Reject.
const (
	Reject                OnConflict = "reject"                  // 409 duplicate
	Replace               OnConflict = "replace"                 // the other one is cancelled
	ReplaceExceptSchedule OnConflict = "replace_except_schedule" // likewise, and its scheduled_at is taken over
	Ignore                OnConflict = "ignore"                  // 200 with the other one; the API document says use_existing
)

const useExisting = "use_existing"

var (
	uniqueMembers = []string{"keys", "args_keys", "meta_keys", "period", "states", "on_conflict", "key", "period_ms"}
	dimensions    = []string{"type", "queue", "args", "meta"}
	defaultStates = []State{Available, Active, Scheduled, Retryable, Pending}
)

// The limits of what a client may name in unique.
const (
	maxKeys      = 100
	maxKeyLength = 1024
)

// readUnique reads what makes the job unique. resolved has the older names of its members replaced.
func (p *jobParser) readUnique(r reader) (unique *Unique, resolved object) {
	r.closed("unique", uniqueMembers...)
	resolved = slices.Clone(r.object)
	u := &Unique{States: defaultStates, OnConflict: Reject}
	if given, ok := r.text("on_conflict", MaxBody); ok {
		if given == useExisting {
			given = string(Ignore)
			resolved.set("on_conflict", quoted(given))
		}
		u.OnConflict = OnConflict(given)
		if !slices.Contains([]OnConflict{Reject, Replace, ReplaceExceptSchedule, Ignore}, u.OnConflict) {
			r.wrong("on_conflict", "must be reject, replace, replace_except_schedule or ignore")
		}
	}
	if names, given := r.texts("states", maxKeys, maxKeyLength); given {
		u.States = nil
		for _, name := range names {
			if !slices.Contains(states(), State(name)) {
				r.wrong("states", "must be a list of states")
			}
			u.States = append(u.States, State(name))
		}
		if len(names) == 0 {
			r.wrong("states", "must name a state")
		}
	}
	u.Period, _ = length(r, &resolved, "period", ParseDuration, maxDuration)
	u.Fingerprint = p.fingerprint(r, p.selection(r, &resolved))
	return u, resolved
}

// selected is which parts of a job make it unique.
type selected struct {
	dimensions         []string
	argsKeys, metaKeys []string
}

// selection reads the chosen parts. An empty list of keys of the arguments or of meta is as good as none.
// The member key lists members of the arguments by the format document and most clients, and dimensions by
// one client; it is resolved.
func (p *jobParser) selection(r reader, resolved *object) (s selected) {
	s.dimensions, _ = r.texts("keys", maxKeys, maxKeyLength)
	s.argsKeys, _ = r.texts("args_keys", maxKeys, maxKeyLength)
	s.metaKeys, _ = r.texts("meta_keys", maxKeys, maxKeyLength)
	if key, given := r.texts("key", maxKeys, maxKeyLength); given {
		if hasEither(r.object, "keys", "args_keys") {
			r.wrong("key", "excludes keys and args_keys")
		}
		if p.areDimensions(r, key) {
			s.dimensions = key
			resolve(resolved, "key", "keys", list(key))
		} else {
			s.dimensions, s.argsKeys = []string{"type", "args"}, key
			resolve(resolved, "key", "keys", list(s.dimensions))
			resolved.set("args_keys", list(key))
		}
	}
	for _, d := range s.dimensions {
		if !slices.Contains(dimensions, d) {
			r.wrong("keys", "must be of type, queue, args and meta")
		}
	}
	byMeta := slices.Contains(s.dimensions, "meta")
	switch {
	case len(s.argsKeys) > 0 && !slices.Contains(s.dimensions, "args"):
		r.wrong("args_keys", "needs args among keys")
	case len(s.metaKeys) > 0 && !byMeta:
		r.wrong("meta_keys", "needs meta among keys")
	case byMeta && len(s.metaKeys) == 0:
		r.wrong("meta_keys", "must name the members of meta that matter")
	}
	return s
}

// areDimensions reports whether the names in key are dimensions. If they are all members of the arguments,
// too, they could be either, and are refused.
func (p *jobParser) areDimensions(r reader, key []string) bool {
	if slices.ContainsFunc(key, func(name string) bool { return !slices.Contains(dimensions, name) }) {
		return false
	}
	args, _ := p.top.get("args")
	had := valuesOf(args, key)
	if len(key) > 0 && !slices.ContainsFunc(key, func(name string) bool { return len(had[name]) == 0 }) {
		r.wrong("key", "could mean dimensions or members of the arguments: name them in keys or args_keys")
	}
	return true
}

// valuesOf returns the values that the objects among the arguments have for some members.
func valuesOf(args json.RawMessage, names []string) map[string][]json.RawMessage {
	wanted := setOf(names)
	values := map[string][]json.RawMessage{}
	for _, one := range elements(args) {
		for _, m := range members(one) {
			if wanted[m.name] {
				values[m.name] = append(values[m.name], m.value)
			}
		}
	}
	return values
}
