package demo

import (
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sosodev/duration"
	"go.uber.org/zap"
)

// A clock is the machine's, set forward. It never goes back.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// furthest is how many years the clock may be set forward at once: enough for the
// retention of a demonstration, and far from what a time.Duration holds.
const furthest = 10

// controls let an audience mend the escrow service, and have the time pass that
// retention takes.
//
//	POST /stage/repair               every call is executed from now on
//	POST /stage/clock?forward=P181D  sets the clock forward and makes a round of retention
func (d *Demo) controls() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /stage/repair", func(w http.ResponseWriter, _ *http.Request) {
		d.main.Ledger.Repair()
		d.tell(w, http.StatusOK, "the escrow service is mended: what is forked now settles\n")
	})
	mux.HandleFunc("POST /stage/clock", d.forward)
	return mux
}

// passed is what came of setting the clock forward.
type passed struct {
	Now       time.Time `json:"now"`
	Announced int       `json:"announced"` // letters whose end was announced
	Pruned    int       `json:"pruned"`    // letters whose retention was over
}

func (d *Demo) forward(w http.ResponseWriter, r *http.Request) {
	by, err := duration.Parse(r.URL.Query().Get("forward"))
	if err != nil || by.Negative || years(by) > furthest {
		d.tell(w, http.StatusBadRequest, "forward is an ISO 8601 duration of at most ten years, such as P181D\n")
		return
	}
	d.clock.ahead.Add(int64(by.ToTimeDuration()))
	report, err := d.main.Service.Prune(r.Context())
	if err != nil {
		d.tell(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	body, err := json.Marshal(passed{Now: d.clock.now().UTC().Truncate(time.Second), Announced: report.Warned, Pruned: report.Pruned})
	if err != nil {
		d.tell(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	d.tell(w, http.StatusOK, string(body)+"\n")
}

func years(d *duration.Duration) float64 {
	return d.Years + d.Months/12 + d.Weeks/52 + d.Days/365 + (d.Hours+d.Minutes/60+d.Seconds/3600)/(365*24)
}

func (d *Demo) tell(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	if _, err := io.WriteString(w, text); err != nil {
		d.main.Log.Debug("an answer was not read to its end", zap.Error(err))
	}
}
