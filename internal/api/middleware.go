package api

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/receipts"
)

// answerTimeout is how long a reader may take to read an answer; streams set their own deadline.
const answerTimeout = 30 * time.Second

// Handle registers a huma operation behind the checks of role, size, JSON and
// Idempotency-Key, in this order.
func (a *API) Handle(op *huma.Operation, next func(huma.Context)) {
	o := op.Metadata["operation"].(operation) // register puts it there
	a.mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		w = &deadlineResponse{ResponseWriter: w}
		c := callerOf(r.Context())
		if err := a.authorize(r, c, o.action); err != nil {
			a.writeProblem(w, err)
			return
		}
		if err := checkQuery(r); err != nil {
			a.writeProblem(w, err)
			return
		}
		if o.itemized {
			a.readBatch(w, r, c, func(r *http.Request) { next(humago.NewContext(op, r, w)) })
			return
		}
		do := func(w http.ResponseWriter) { next(humago.NewContext(op, r, w)) }
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			do(w)
			return
		}
		body, err := readBody(w, r, o)
		if err != nil {
			a.writeProblem(w, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if key := r.Header.Values("Idempotency-Key"); len(key) > 0 && !o.idempotent {
			a.doOnce(w, r, o, c, key, body, do)
			return
		}
		do(w)
	})
}

// deadlineResponse starts the write deadline with the first byte of the answer, so that an
// operation that took long can still be answered.
type deadlineResponse struct {
	http.ResponseWriter
	started bool
}

// Unwrap is for http.ResponseController.
func (w *deadlineResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *deadlineResponse) WriteHeader(status int) {
	w.start()
	w.ResponseWriter.WriteHeader(status)
}

func (w *deadlineResponse) Write(b []byte) (int, error) {
	w.start()
	return w.ResponseWriter.Write(b)
}

func (w *deadlineResponse) start() {
	if w.started {
		return
	}
	w.started = true
	// A writer may not support deadlines; on a closed connection Write returns the error.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTimeout))
}

// readBody reads a whole body, which must be one JSON object or empty.
func readBody(w http.ResponseWriter, r *http.Request, o operation) ([]byte, error) {
	most := o.maxBody
	if most == 0 {
		most = maxBodyBytes
	}
	if err := checkContentType(r); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return nil, unreadBodyProblem(err, most)
	}
	if len(body) == 0 {
		return nil, nil
	}
	if err := strictjson.CheckObject(body); err != nil {
		return nil, malformedProblem(err)
	}
	if o.raw { // package intake checks it
		return body, nil
	}
	return body, rejectNulls(body)
}

// malformedProblem returns the problem of a body that is invalid JSON.
func malformedProblem(err error) *Problem {
	p := newProblem(http.StatusBadRequest, "malformed", "the body can't be read")
	var wrong *strictjson.Error
	if errors.As(err, &wrong) {
		return p.withField(redact.Text(wrong.Field), wrong.Problem)
	}
	return p
}

func checkContentType(r *http.Request) error {
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	kind, params, err := mime.ParseMediaType(given)
	if err != nil || kind != "application/json" || !strings.EqualFold(cmp.Or(params["charset"], "utf-8"), "utf-8") {
		return newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "send application/json in UTF-8 (curl: --json)")
	}
	return nil
}

// unreadBodyProblem returns the problem of a body that could not be read to its end.
func unreadBodyProblem(err error, most int64) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return newProblem(http.StatusRequestEntityTooLarge, "too_large", "the body is over %d bytes", most)
	}
	return newProblem(http.StatusRequestTimeout, "too_slow", "the body did not arrive")
}

// idsInPath returns the run or the case in a path.
func idsInPath(r *http.Request) (run background.RunID, caseID background.CaseID) {
	if id, err := receipts.ParseRunID(r.PathValue("run")); err == nil {
		run = id
	}
	if id, err := receipts.ParseCaseID(r.PathValue("case")); err == nil {
		caseID = id
	}
	return run, caseID
}

func parseRunID(text string) (background.RunID, error) {
	id, err := receipts.ParseRunID(text)
	if err != nil {
		return id, newProblem(http.StatusUnprocessableEntity, "invalid", "a run is named by its id").withField("run", "is no UUID")
	}
	return id, nil
}

func parseCaseID(text string) (background.CaseID, error) {
	id, err := receipts.ParseCaseID(text)
	if err != nil {
		return id, newProblem(http.StatusUnprocessableEntity, "invalid", "a case is named by its id").withField("case", "is no UUID")
	}
	return id, nil
}
