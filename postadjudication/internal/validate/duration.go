package validate

import (
	"fmt"
	"regexp"
	"time"

	"github.com/sosodev/duration"
)

const Day = 24 * time.Hour

// MaxAge is well below the maximum of a time.Duration, so that sums do not overflow.
const MaxAge = 200 * 365 * 24 * time.Hour

var ISODuration = regexp.MustCompile(`^P(\d+Y)?(\d+M)?(\d+W)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?$`)

// ParseISODuration parses a positive ISO 8601 duration of at most 200 years.
func ParseISODuration(text string) (time.Duration, error) {
	d, err := duration.Parse(text)
	if err != nil || !ISODuration.MatchString(text) || text[len(text)-1] == 'T' {
		return 0, fmt.Errorf("%q is not an ISO 8601 duration such as P180D or PT36H", text)
	}
	years := d.Years + d.Months/12 + d.Weeks/52 + d.Days/365 + (d.Hours+d.Minutes/60+d.Seconds/3600)/(365*24)
	if years > MaxAge.Hours()/(365*24) {
		return 0, fmt.Errorf("%s is more than 200 years", text)
	}
	if age := d.ToTimeDuration(); age > 0 {
		return age, nil
	}
	return 0, fmt.Errorf("%s is not longer than zero", text)
}
