package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sosodev/duration"
	"go.uber.org/zap"
)

// controlRoutes let an audience mend the escrow service, and have the time pass that
// retention takes.
//
//	POST /stage/repair               every call is executed from now on
//	POST /stage/clock?forward=P180D  sets the clock forward and makes a round of retention
func (d *Demo) controlRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /stage/repair", func(w http.ResponseWriter, _ *http.Request) {
		d.main.EmbeddedEscrow.Repair()
		d.writeText(w, http.StatusOK, "the escrow service is mended: what is forked now settles")
	})
	mux.HandleFunc("POST /stage/clock", d.advanceClock)
	return mux
}

// advanceAnswer is what came of setting the clock forward.
type advanceAnswer struct {
	Now       time.Time `json:"now"`
	Announced int       `json:"announced"` // letters whose end was announced
	Pruned    int       `json:"pruned"`    // letters whose retention was over
}

func (d *Demo) advanceClock(w http.ResponseWriter, r *http.Request) {
	if err := d.clock.advance(r.URL.Query().Get("forward")); err != nil {
		d.writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	report, err := d.main.Service.Prune(r.Context())
	if err == nil && !report.Ran {
		d.writeText(w, http.StatusConflict, "the clock is set forward; retention is at work already, and goes by it from its next round on")
		return
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(advanceAnswer{Now: d.clock.now().UTC().Truncate(time.Second), Announced: report.Announced, Pruned: report.Pruned})
	}
	if err != nil {
		d.writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	d.writeText(w, http.StatusOK, string(body))
}

func (d *Demo) writeText(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	if _, err := io.WriteString(w, text+"\n"); err != nil {
		d.main.Log.Debug("an answer was not read to its end", zap.Error(err))
	}
}

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
