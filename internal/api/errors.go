package api

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"syscall"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
)

// outage is what is known of a request whose servers could not be reached. That a
// statement failed proves nothing: its connection may have broken behind the commit, and
// the driver may have sent it twice.
type outage struct {
	done   Done
	detail string
}

// Done is what is known to have been done.
type Done string

// The values of Done.
const (
	DoneNothing Done = "nothing"
	DoneUnknown Done = "unknown"
)

const outageDetail = "Postgres or Redis can't be reached, or broke off; "

var (
	outageNothingDone = outage{DoneNothing, "nothing was done: ask the same again"}
	outageOfSubmit    = outage{DoneUnknown, "it is not known whether anything was accepted. To hand over the same again is safe: what was accepted is answered as accepted, and nothing is executed twice"}
	outageOfAction    = outage{DoneUnknown, "it is not known whether anything was done: ask the same again; what was done is not done twice"}
)

func (o operation) outage() outage {
	switch {
	case o.method == http.MethodGet:
		return outageNothingDone
	case o.action == access.Submit:
		return outageOfSubmit
	}
	return outageOfAction
}

// problemOf tells the problem behind an error of the service. What nobody outside can
// make good is logged, and said without particulars.
func (a *API) problemOf(ctx context.Context, whenUnavailable outage, err error) error {
	var p *Problem
	var gate *postadjudication.RefusedError
	var second *postadjudication.SecondPersonError
	var often *postadjudication.TooManyRefusalsError
	var nothing *postadjudication.NothingSelectedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p
	case errors.As(err, &often):
		return tooManyRefusals(int(math.Ceil(often.After.Seconds())))
	case errors.As(err, &gate):
		return gateProblem(gate)
	case errors.As(err, &second):
		return secondPersonProblem(second)
	case errors.As(err, &nothing):
		return nothingSelected(nothing)
	case errors.Is(err, postadjudication.ErrNotFound):
		return newProblem(http.StatusNotFound, "not_found", "the tenant has none such")
	}
	if fields := fieldProblems(err); len(fields) > 0 {
		p := newProblem(http.StatusUnprocessableEntity, "invalid", "%s %s", fields[0].Field, fields[0].Problem)
		p.Errors = fields
		return p
	}
	if p := sentinelProblem(err); p != nil {
		return p
	}
	if ctx.Err() == nil {
		c := callerOf(ctx)
		a.log.Error("a request failed", zap.String("request", c.requestName), zap.String("tenant", c.Tenant), zap.Error(err))
	}
	if isOutage(err) {
		p := newProblem(http.StatusServiceUnavailable, "unavailable", "%s", outageDetail+whenUnavailable.detail).withRetryAfter(2)
		p.Done = &whenUnavailable.done
		return p
	}
	return newProblem(http.StatusInternalServerError, "internal", "something broke; it is in the log")
}

// sentinelProblem tells the refusals that are single values.
func sentinelProblem(err error) *Problem {
	for _, known := range []struct {
		err    error
		status int
		code   string
		detail string
		again  int
	}{
		{postadjudication.ErrReconcileFirst, http.StatusConflict, "reconcile_first", "it is not known whether money moved: reconcile first", 0},
		{postadjudication.ErrEnded, http.StatusConflict, "ended", "the run has ended", 0},
		{postadjudication.ErrUnreadable, http.StatusConflict, "unreadable", "the run is of a version that this process can't read: ask a newer one", 0},
		{postadjudication.ErrUnrecordable, http.StatusUnprocessableEntity, "unrecordable", "it has values that can't be recorded: nothing was done", 0},
		{postadjudication.ErrBreakerNotOpen, http.StatusConflict, "breaker_not_open", "the circuit breaker is not open: there is nothing to release", 0},
		{postadjudication.ErrNoExecutor, http.StatusServiceUnavailable, "no_executor", "this process knows no escrow service to ask", 0},
		{postadjudication.ErrTooManyConditions, http.StatusTooManyRequests, "too_many_conditions", "as many searches, exports and plans with a condition are worked on as may be at once: ask again when one has ended", 2},
		{postadjudication.ErrTargetUnknown, http.StatusServiceUnavailable, "target_unknown", "this process does not call the escrow service of the run: ask one that does", 0},
		{postadjudication.ErrRequestMismatch, http.StatusUnprocessableEntity, "idempotency_mismatch", "the Idempotency-Key was used for another request within 24 hours", 0},
		{postadjudication.ErrRequestBusy, http.StatusConflict, "idempotency_in_progress", "the request with this Idempotency-Key is being worked on", 1},
		{background.ErrBusy, http.StatusServiceUnavailable, "busy", "another transaction holds the case: ask again", 1},
	} {
		if errors.Is(err, known.err) {
			return newProblem(known.status, known.code, "%s", known.detail).withRetryAfter(known.again)
		}
	}
	return nil
}

func gateProblem(e *postadjudication.RefusedError) *Problem {
	p := newProblem(http.StatusConflict, string(e.Gate), "%s", e.Gate.Meaning())
	if e.Because != "" {
		p.Detail += "; " + e.Because
	}
	p.Run = &e.Run
	if e.Letter != background.NoLetter {
		p.Letter = &e.Letter
	}
	if !e.ActiveRun.IsZero() && e.ActiveRun != e.Run {
		p.ActiveRun = &e.ActiveRun
	}
	return p
}

// nothingSelected tells that there is nothing to plan.
func nothingSelected(e *postadjudication.NothingSelectedError) *Problem {
	p := newProblem(http.StatusUnprocessableEntity, "nothing_selected", "nothing is selected, and no plan was made")
	if e.Undecided > 0 {
		p.Detail += fmt.Sprintf("; of %d letters that were looked at, the condition could not be told of %d", e.Scanned, e.Undecided)
	}
	p.Scanned, p.Undecided = e.Scanned, e.Undecided
	return p
}

// secondPersonProblem tells that something was planned which somebody else has to let run: 202; or
// that whoever asks may not let it run: 409.
func secondPersonProblem(e *postadjudication.SecondPersonError) *Problem {
	status, detail := http.StatusAccepted, "it is planned, and takes another person to let it run: POST "+Prefix+"/bulk/"+e.Plan.ID.String()+"/run with its hash, by another principal's key"
	if e.Because != "" {
		status, detail = http.StatusConflict, e.Because
	}
	p := newProblem(status, e.Code(), "%s", detail)
	p.PlanID, p.Hash, p.Plan = e.Plan.ID.String(), e.Plan.Hash, &e.Plan
	return p
}

// fieldProblems are the wrong fields in a joined error.
func fieldProblems(err error) (out []FieldProblem) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, fieldProblems(e)...)
		}
		return out
	}
	var f *postadjudication.FieldError
	if errors.As(err, &f) {
		out = append(out, FieldProblem{f.Field, f.Problem})
	}
	return out
}

// isOutage reports whether a server could not be reached, or broke off.
func isOutage(err error) bool {
	var network net.Error
	var state interface{ SQLState() string }
	for _, broken := range []error{context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn, sql.ErrConnDone, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, broken) {
			return true
		}
	}
	switch {
	case errors.As(err, &network):
		return true
	case errors.As(err, &state):
		class := state.SQLState()
		return len(class) == 5 && (class[:2] == "08" || class[:2] == "53" || class[:2] == "57" || class == "3D000")
	}
	return false
}

// writeProblem writes a problem outside of huma.
func (a *API) writeProblem(w http.ResponseWriter, err error) {
	var p *Problem
	if !errors.As(err, &p) {
		p = newProblem(http.StatusInternalServerError, "internal", "something broke; it is in the log")
	}
	a.countRefusal(p)
	body, merr := json.Marshal(p)
	if merr != nil {
		a.log.Error("a problem can't be told", zap.Error(merr))
	}
	for name := range p.GetHeaders() {
		w.Header().Add(name, p.GetHeaders().Get(name))
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		a.log.Debug("a problem was not read to its end", zap.Error(err))
	}
}
