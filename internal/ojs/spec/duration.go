package spec

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxDuration bounds durations: a hundred years. Sums with a time stay far from overflowing.
const maxDuration = 100 * year

const (
	day   = 24 * time.Hour
	year  = 365 * day
	month = year / 12
)

// durationPattern is ISO 8601 as the specification has it: no weeks, no sign, and a fraction of seconds
// only.
var durationPattern = regexp.MustCompile(`^P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?$`)

var (
	errDuration = errors.New("must be an ISO 8601 duration such as PT1M30S or P180D, without weeks, signs and fractions but of seconds, of at most 100 years")
	errInterval = errors.New("must be an ISO 8601 duration of days, hours, minutes and seconds, such as PT1M30S")
)

// ParseDuration reads an ISO 8601 duration, of at most 100 years. P and PT, a T at the end, weeks, signs
// and fractions of anything but seconds are refused. A year is 365 days, and a month a twelfth of it.
func ParseDuration(text string) (time.Duration, error) {
	m := durationPattern.FindStringSubmatch(text)
	if m == nil || text == "P" || strings.HasSuffix(text, "T") {
		return 0, errDuration
	}
	var total time.Duration
	for i, unit := range []time.Duration{year, month, day, time.Hour, time.Minute, time.Second} {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseInt(m[i+1], 10, 64)
		if err != nil || n > int64((maxDuration-total)/unit) { // checked before each addition: a sum of several units may overflow
			return 0, errDuration
		}
		total += time.Duration(n) * unit
	}
	if fraction := m[7]; fraction != "" {
		n, err := strconv.ParseInt(fraction+strings.Repeat("0", 9-len(fraction)), 10, 64)
		if err != nil {
			return 0, errDuration
		}
		total += time.Duration(n)
	}
	if total > maxDuration {
		return 0, errDuration
	}
	return total, nil
}

// parseInterval is ParseDuration without years and months, which have no length of their own.
func parseInterval(text string) (time.Duration, error) {
	date, _, _ := strings.Cut(text, "T")
	d, err := ParseDuration(text)
	if err != nil || strings.ContainsAny(date, "YM") {
		return 0, errInterval
	}
	return d, nil
}

// FormatDuration returns a duration in days, hours, minutes and seconds, which ParseDuration reads back.
// A negative one is PT0S.
func FormatDuration(d time.Duration) string {
	if d <= 0 {
		return "PT0S"
	}
	out := "P"
	if d >= day {
		out += strconv.FormatInt(int64(d/day), 10) + "D"
	}
	if d %= day; d == 0 {
		return out
	}
	out += "T"
	for _, unit := range []struct {
		length time.Duration
		letter string
	}{{time.Hour, "H"}, {time.Minute, "M"}} {
		if d >= unit.length {
			out += strconv.FormatInt(int64(d/unit.length), 10) + unit.letter
			d %= unit.length
		}
	}
	if d == 0 {
		return out
	}
	out += strconv.FormatInt(int64(d/time.Second), 10)
	if fraction := int64(d % time.Second); fraction > 0 {
		digits := strconv.FormatInt(int64(time.Second)+fraction, 10)[1:]
		out += "." + strings.TrimRight(digits, "0")
	}
	return out + "S"
}

var agePattern = regexp.MustCompile(`^(\d{1,6})([dh])$`)

var errAge = errors.New("must be a time as RFC 3339 has it, or an age such as 7d, 24h or P7D")

// parseAge reads an age as the command line of Open Job Spec writes it, 7d or 24h, or as ISO 8601 has it.
func parseAge(text string) (time.Duration, error) {
	m := agePattern.FindStringSubmatch(text)
	if m == nil {
		d, err := ParseDuration(text)
		if err != nil {
			return 0, errAge
		}
		return d, nil
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	unit := time.Hour
	if m[2] == "d" {
		unit = day
	}
	if err != nil || n > int64(maxDuration/unit) {
		return 0, errAge
	}
	return time.Duration(n) * unit, nil
}
