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

// controlRoutes returns routes that repair the escrow service and advance the clock of retention.
//
//	POST /demo/repair               every call is executed from now on
//	POST /demo/clock?forward=P180D  advances the clock and runs retention once
func (d *Demo) controlRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /demo/repair", func(w http.ResponseWriter, _ *http.Request) {
		d.main.EmbeddedEscrow.Repair()
		d.writeText(w, http.StatusOK, "the escrow service is repaired: new forks settle")
	})
	mux.HandleFunc("POST /demo/clock", d.advanceClock)
	return mux
}

// advanceAnswer is the result of advancing the clock.
type advanceAnswer struct {
	Now       time.Time `json:"now"`
	Announced int       `json:"announced"` // letters whose expiry was announced
	Pruned    int       `json:"pruned"`    // letters removed because their retention expired
}

func (d *Demo) advanceClock(w http.ResponseWriter, r *http.Request) {
	if err := d.clock.advance(r.URL.Query().Get("forward")); err != nil {
		d.writeText(w, http.StatusBadRequest, err.Error())
		return
	}
	report, err := d.main.Service.Prune(r.Context())
	if err == nil && !report.Ran {
		d.writeText(w, http.StatusConflict, "the clock was advanced; retention is already running and uses the new time from its next pass on")
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
		d.main.Log.Debug("an answer could not be written completely", zap.Error(err))
	}
}

// maxAdvance is how far the clock may be advanced in total: enough for the retention of a
// demonstration, and far below the limit of a time.Duration.
const maxAdvance = 100 * 365 * 24 * time.Hour

// clock is the clock of the machine plus an offset. It never goes back.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// advance advances the clock by an ISO 8601 duration.
func (c *clock) advance(text string) error {
	by, err := duration.Parse(text)
	if err != nil || by.Negative || years(by) > maxAdvance.Hours()/(365*24) {
		return fmt.Errorf("forward must be an ISO 8601 duration, such as P180D")
	}
	for {
		ahead := c.offset.Load()
		if ahead+int64(by.ToTimeDuration()) > int64(maxAdvance) {
			return fmt.Errorf("the clock can be advanced by at most a hundred years")
		}
		if c.offset.CompareAndSwap(ahead, ahead+int64(by.ToTimeDuration())) {
			return nil
		}
	}
}

func years(d *duration.Duration) float64 {
	return d.Years + d.Months/12 + d.Weeks/52 + d.Days/365 + (d.Hours+d.Minutes/60+d.Seconds/3600)/(365*24)
}
