package door

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Refusal is why a request is refused, before a door renders it. Code is for programs and is
// stable; Detail is for people and may change.
type Refusal struct {
	Status     int
	Code       string
	Detail     string
	Fields     []refusal.FieldError // problems of single fields, named as in the request; no name: the body as a whole
	Needs      []access.Role        // roles that allow it; the caller needs one of them
	Done       Done                 // with unavailable: what is known to have been done
	RetryAfter int                  // in seconds; 0: not said
	Allow      string               // with method_not_allowed: the methods of the path
	Cause      error                // what the service refused with, for doors that show more of it; may be nil
}

// NewRefusal returns a refusal whose detail is formatted as by fmt.Sprintf.
func NewRefusal(status int, code, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// WithRetryAfter sets RetryAfter to some seconds; 0: none.
func (r *Refusal) WithRetryAfter(seconds int) *Refusal {
	r.RetryAfter = seconds
	return r
}

// maxFields is how many fields one refusal names.
const maxFields = 20

// WithField adds the problem of a field, unless the refusal names the most fields already.
func (r *Refusal) WithField(field, problem string) *Refusal {
	if len(r.Fields) == maxFields {
		return r
	}
	r.Fields = append(r.Fields, refusal.FieldError{Field: field, Problem: problem})
	return r
}

// WithCause sets Cause.
func (r *Refusal) WithCause(cause error) *Refusal {
	r.Cause = cause
	return r
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Detail }

// Unwrap returns Cause.
func (r *Refusal) Unwrap() error { return r.Cause }

// Headers returns the headers that HTTP has for the refusal.
func (r *Refusal) Headers() http.Header {
	h := http.Header{}
	if r.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(r.RetryAfter))
	}
	if r.Allow != "" {
		h.Set("Allow", r.Allow)
	}
	if r.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="recourse"`)
	}
	return h
}

// Outage is what is known of a request whose servers could not be reached. A failed statement
// proves nothing: its connection may have broken after the commit, and the driver may have
// sent it twice.
type Outage struct {
	Done   Done
	Detail string
}

// Done says what is known to have been done.
type Done string

// The values of Done.
const (
	DoneNothing Done = "nothing"
	DoneUnknown Done = "unknown"
)

const outageDetail = "Postgres or Redis can't be reached or closed the connection; "

// The outages of requests that need no other words.
var (
	OutageNothingDone = Outage{DoneNothing, "nothing was done: send the same request again"}
	OutageOfAction    = Outage{DoneUnknown, "it is not known whether anything was done: send the same request again; nothing is done twice"}
)

// RefusalOf returns the refusal for an error of the service; a *Refusal is returned as it is. An
// error that the caller can't correct is logged, and refused without details. After an outage the
// refusal says what is known by the route of the request.
func (d *Door) RefusalOf(ctx context.Context, err error) *Refusal {
	return d.refusalOf(ctx, requestOf(ctx).outage, err)
}

func (d *Door) refusalOf(ctx context.Context, whenUnavailable Outage, err error) *Refusal {
	var refused *Refusal
	var tooMany *refusal.TooManyRefusalsError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &tooMany):
		return tooManyRefusals(int(math.Ceil(tooMany.After.Seconds())))
	}
	if refused := cmp.Or(refusalWithCause(err), fieldRefusal(err), sentinelRefusal(err)); refused != nil {
		return refused
	}
	if ctx.Err() == nil {
		r := requestOf(ctx)
		d.log.Error("a request failed", zap.String("request", r.name), zap.String("tenant", r.caller.Tenant), zap.Error(err))
	}
	if isOutage(err) {
		refused := NewRefusal(http.StatusServiceUnavailable, "unavailable", "%s", outageDetail+whenUnavailable.Detail).WithRetryAfter(2)
		refused.Done = whenUnavailable.Done
		return refused
	}
	return NewRefusal(http.StatusInternalServerError, "internal", "internal error; the log has its cause")
}

// refusalWithCause returns the refusal of an error of which a door may show more, or nil.
func refusalWithCause(err error) *Refusal {
	var gate *refusal.RefusedError
	var secondPerson *bulk.SecondPersonError
	var empty *bulk.NothingSelectedError
	var newer *references.FormatError
	switch {
	case errors.As(err, &newer): // another process can read it: whoever asks again there loses nothing
		refused := NewRefusal(http.StatusServiceUnavailable, "references_unreadable", "%s", strings.TrimPrefix(newer.Error(), "references: ")).WithRetryAfter(60)
		refused.Done = DoneNothing
		return refused
	case errors.As(err, &gate):
		refused := NewRefusal(http.StatusConflict, string(gate.Gate), "%s", gate.Gate.Meaning()).WithCause(gate)
		if gate.Because != "" {
			refused.Detail += "; " + gate.Because
		}
		return refused
	case errors.As(err, &secondPerson):
		return secondPersonRefusal(secondPerson)
	case errors.As(err, &empty):
		refused := NewRefusal(http.StatusUnprocessableEntity, "nothing_selected", "nothing is selected: no plan was made").WithCause(empty)
		if empty.Undecided > 0 {
			refused.Detail += fmt.Sprintf("; of %d letters scanned, the condition had no result for %d", empty.Scanned, empty.Undecided)
		}
		return refused
	case errors.Is(err, refusal.ErrNotFound):
		return NewRefusal(http.StatusNotFound, "not_found", "the tenant has no such object").WithCause(refusal.ErrNotFound)
	}
	return nil
}

// secondPersonRefusal returns 202 if an action was planned that another person has to run, and
// 409 if the caller may not run the plan.
func secondPersonRefusal(e *bulk.SecondPersonError) *Refusal {
	if e.Because != "" {
		return NewRefusal(http.StatusConflict, e.Code(), "%s", e.Because).WithCause(e)
	}
	return NewRefusal(http.StatusAccepted, e.Code(), "it is planned, and another person has to run it").WithCause(e)
}

// sentinelRefusal returns the refusal of an error that is a single value, or nil.
func sentinelRefusal(err error) *Refusal {
	for _, known := range []struct {
		err        error
		status     int
		code       string
		detail     string
		retryAfter int
	}{
		{refusal.ErrReconcileFirst, http.StatusConflict, "reconcile_first", "it is not known whether money moved: reconcile first", 0},
		{refusal.ErrEnded, http.StatusConflict, "ended", "the run has ended", 0},
		{refusal.ErrUnreadable, http.StatusConflict, "unreadable", "the run was written by a newer version that this process can't read: use a newer process", 0},
		{refusal.ErrUnrecordable, http.StatusUnprocessableEntity, "unrecordable", "the request has values that can't be recorded: nothing was done", 0},
		{postadjudication.ErrBreakerNotOpen, http.StatusConflict, "breaker_not_open", "the circuit breaker is not open: there is nothing to release", 0},
		{refusal.ErrNoExecutor, http.StatusServiceUnavailable, "no_executor", "this process has no escrow service to call", 0},
		{deadletter.ErrTooManyConditions, http.StatusTooManyRequests, "too_many_conditions", "the maximum number of searches, exports and plans with a condition is running: try again when one has ended", 2},
		{refusal.ErrTargetUnknown, http.StatusServiceUnavailable, "target_unknown", "this process does not call the escrow service of the run: use one that does", 0},
		{postadjudication.ErrRequestMismatch, http.StatusUnprocessableEntity, "idempotency_mismatch", "the Idempotency-Key was used for another request within 24 hours", 0},
		{postadjudication.ErrRequestBusy, http.StatusConflict, "idempotency_in_progress", "the request with this Idempotency-Key is still in progress", 1},
		{background.ErrBusy, http.StatusServiceUnavailable, "busy", "another transaction has locked the case: try again", 1},
	} {
		if errors.Is(err, known.err) {
			return NewRefusal(known.status, known.code, "%s", known.detail).WithRetryAfter(known.retryAfter).WithCause(known.err)
		}
	}
	return nil
}

// fieldRefusal returns the refusal of invalid fields, or nil.
func fieldRefusal(err error) *Refusal {
	fields := fieldErrors(err)
	if len(fields) == 0 {
		return nil
	}
	refused := NewRefusal(http.StatusUnprocessableEntity, "invalid", "%s %s", fields[0].Field, fields[0].Problem)
	refused.Fields = fields
	return refused
}

// fieldErrors returns the field errors in a joined error.
func fieldErrors(err error) (out []refusal.FieldError) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, fieldErrors(e)...)
		}
		return out
	}
	var f *refusal.FieldError
	if errors.As(err, &f) {
		out = append(out, *f)
	}
	return out
}

// isOutage reports whether a server, Postgres or Redis, could not be reached, closed the connection
// or did not answer in time. Unlike journal.IsUnavailable it takes contention for none: that is busy,
// and the database works.
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
		return len(class) == 5 && (class[:2] == "08" || class[:2] == "53" || class[:2] == "57" || class == "3D000" || class == readOnlyTransaction)
	}
	return false
}

// readOnlyTransaction is the SQLSTATE of a write to a server that has become a standby.
const readOnlyTransaction = "25006"
