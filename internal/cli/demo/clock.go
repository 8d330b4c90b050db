package demo

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sosodev/duration"
)

// maxAdvance is how far the clock may be set forward in all: enough for the retention of a
// demonstration, and far from what a time.Duration holds.
const maxAdvance = 100 * 365 * 24 * time.Hour

// A clock is the machine's, set forward. It never goes back.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// advance sets the clock forward by an ISO 8601 duration.
func (c *clock) advance(text string) error {
	by, err := duration.Parse(text)
	if err != nil || by.Negative || years(by) > maxAdvance.Hours()/(365*24) {
		return fmt.Errorf("forward is an ISO 8601 duration, such as P180D")
	}
	for {
		ahead := c.offset.Load()
		if ahead+int64(by.ToTimeDuration()) > int64(maxAdvance) {
			return fmt.Errorf("the clock is set forward by a hundred years at most")
		}
		if c.offset.CompareAndSwap(ahead, ahead+int64(by.ToTimeDuration())) {
			return nil
		}
	}
}

func years(d *duration.Duration) float64 {
	return d.Years + d.Months/12 + d.Weeks/52 + d.Days/365 + (d.Hours+d.Minutes/60+d.Seconds/3600)/(365*24)
}
