package spec

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/recourse-dev/recourse/internal/strictjson"
)

// reader reads the members of an object. All readers of a body keep its first refusal.
type reader struct {
	object
	path    string // the names of the members around the object, each with a dot behind it
	refusal **Error
	invalid func(field, problem string, args ...any) *Error // the refusal of a wrong member
}

func newReader(o object) reader { return reader{o, "", new(*Error), Invalid} }

// within returns a reader of an object that is the value of a member.
func (r reader) within(name string, raw json.RawMessage) reader {
	r.object, r.path = members(raw), r.path+name+"."
	return r
}

func (r reader) refuse(e *Error) {
	if *r.refusal == nil {
		*r.refusal = e
	}
}

// wrong refuses a member.
func (r reader) wrong(name, problem string, args ...any) {
	r.refuse(r.invalid(r.path+name, problem, args...))
}

// failed returns the first refusal.
func (r reader) failed() error {
	if *r.refusal != nil {
		return *r.refusal
	}
	return nil
}

// closed refuses members that are not named.
func (r reader) closed(what string, names ...string) {
	for _, m := range r.object {
		if !slices.Contains(names, m.name) {
			r.wrong(strictjson.Name(m.name), "is not a member of %s", what)
		}
	}
}

// nullable returns a reader for which members that are null are absent, if they are named.
func (r reader) nullable(names ...string) reader {
	r.object = r.without(func(m member) bool { return isNull(m.value) && slices.Contains(names, m.name) })
	return r
}

// ofKind returns the value of a member that must be of a kind.
func (r reader) ofKind(name, kind string) (json.RawMessage, bool) {
	raw, given := r.get(name)
	if given && strictjson.Kind(raw) != kind {
		r.wrong(name, "must be %s, is %s", kind, strictjson.Kind(raw))
		return nil, false
	}
	return raw, given
}

// text reads a string of at most a number of bytes.
func (r reader) text(name string, most int) (string, bool) {
	raw, given := r.ofKind(name, "a string")
	if !given {
		return "", false
	}
	s, _ := unquote(raw)
	if len(s) > most {
		r.wrong(name, "must be at most %d bytes", most)
		return "", false
	}
	return s, true
}

// whole reads a whole number, written without fraction and exponent.
func (r reader) whole(name string, least, most int64) (int64, bool) {
	raw, given := r.ofKind(name, "a number")
	if !given {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < least || n > most {
		r.wrong(name, "must be a whole number from %d to %d", least, most)
		return 0, false
	}
	return n, true
}

// flag reads a boolean.
func (r reader) flag(name string) (value, given bool) {
	raw, given := r.ofKind(name, "a boolean")
	return string(raw) == "true", given
}

// inner returns a reader of a member that must be an object. Without the member it has no members.
func (r reader) inner(name string) (reader, bool) {
	raw, given := r.ofKind(name, "an object")
	return r.within(name, raw), given
}

// texts reads a list of at most a number of strings, each of 1 to a number of bytes.
func (r reader) texts(name string, most, length int) ([]string, bool) {
	raw, given := r.ofKind(name, "a list")
	if !given {
		return nil, false
	}
	all := elements(raw)
	if len(all) > most {
		r.wrong(name, "must have at most %d entries", most)
		return nil, false
	}
	out := make([]string, len(all))
	for i, one := range all {
		s, ok := unquote(one)
		if !ok || s == "" || len(s) > length {
			r.wrong(name, "must be a list of strings of 1 to %d bytes", length)
			return nil, false
		}
		out[i] = s
	}
	return out, true
}

// milliseconds reads a length of time in whole milliseconds.
func (r reader) milliseconds(name string, least, most time.Duration) (time.Duration, bool) {
	ms, given := r.whole(name, least.Milliseconds(), most.Milliseconds())
	return time.Duration(ms) * time.Millisecond, given
}

// duration reads an ISO 8601 duration that is longer than 0.
func (r reader) duration(name string, read func(string) (time.Duration, error), most time.Duration) (time.Duration, bool) {
	raw, given := r.ofKind(name, "a string")
	if !given {
		return 0, false
	}
	s, _ := unquote(raw)
	d, err := read(s)
	switch {
	case err != nil:
		r.wrong(name, "%s", err)
	case d <= 0:
		r.wrong(name, "must be longer than 0")
	case d > most:
		r.wrong(name, "must be at most %s", FormatDuration(most))
	default:
		return d, true
	}
	return 0, false
}

// time reads an absolute time.
func (r reader) time(name string) (time.Time, bool) {
	raw, given := r.ofKind(name, "a string")
	if !given {
		return time.Time{}, false
	}
	s, _ := unquote(raw)
	t, err := parseTime(s)
	if err != nil {
		r.wrong(name, "%s", err)
		return time.Time{}, false
	}
	return t, true
}
