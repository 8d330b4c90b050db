package spec

import (
	"errors"
	"regexp"
	"strings"
	"time"
)

// FormatTime returns a time as a server writes it: in UTC with Z and milliseconds. What is shorter than a
// millisecond is cut off, so that nothing is announced later than it is.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// timePattern is stricter than time.Parse, which takes commas, offsets of 24 hours and hours of one digit.
var timePattern = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,30})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

var errTime = errors.New("must be a time as RFC 3339 has it, with Z or an offset, from 1970 to 9998")

// The years of times. Zero times of careless clients are before them, and no sum of a time and a
// duration is far beyond.
const (
	firstYear = 1970
	lastYear  = 9998
)

// parseTime reads a time of RFC 3339 with an explicit zone, of the years 1970 to 9998. Lower-case letters
// and leap seconds are refused.
func parseTime(text string) (time.Time, error) {
	if !timePattern.MatchString(text) {
		return time.Time{}, errTime
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !inRange(t) {
		return time.Time{}, errTime
	}
	return t, nil
}

func inRange(t time.Time) bool {
	year := t.UTC().Year()
	return year >= firstYear && year <= lastYear
}

// moment is a time that a client gave.
type moment struct {
	at   time.Time
	text string // an absolute time as it was written, a relative one as the time that it meant
}

var errMoment = errors.New(errTime.Error() + ", or + and an ISO 8601 duration from now on")

// parseMoment reads an absolute time, or "+" and a duration, which counts from now.
func parseMoment(text string, now time.Time) (moment, error) {
	relative, is := strings.CutPrefix(text, "+")
	if !is {
		t, err := parseTime(text)
		if err != nil {
			return moment{}, errMoment
		}
		return moment{t, text}, nil
	}
	d, err := ParseDuration(relative)
	t := now.Add(d)
	if err != nil || !inRange(t) {
		return moment{}, errMoment
	}
	t = t.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond).UTC() // not earlier than was meant
	return moment{t, FormatTime(t)}, nil
}
