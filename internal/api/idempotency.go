package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/http"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication"
)

// ReplayedHeader says of an answer that it is the one given before.
const ReplayedHeader = "Idempotency-Replayed"

// storedHeaders are the headers of an answer that are repeated with it.
var storedHeaders = []string{"Content-Type", "Location"}

// doOnce does a request once, however often it comes under its Idempotency-Key, and
// repeats the answer. What was refused changed nothing: its key is free again. When
// the process dies over it, the same request is done again two minutes later at the
// earliest, and the action's own guard keeps it from acting twice.
func (a *API) doOnce(w http.ResponseWriter, r *http.Request, o operation, c Caller, keys []string, body []byte, do func(http.ResponseWriter)) {
	if len(keys) != 1 {
		a.writeProblem(w, newProblem(http.StatusUnprocessableEntity, "invalid", "give one Idempotency-Key").withField("Idempotency-Key", "is given twice"))
		return
	}
	if len(keys[0]) > 255 {
		a.writeProblem(w, newProblem(http.StatusUnprocessableEntity, "invalid", "the Idempotency-Key is too long").withField("Idempotency-Key", "must be 1 to 255 bytes of plain text"))
		return
	}
	own := keys[0] // empty: refused as it is
	if own != "" {
		own = c.Principal + " " + own // nobody takes a key from another principal
	}
	stored, request, err := a.service.BeginRequest(r.Context(), c.Tenant, own, requestDigest(r, c, body))
	if err != nil {
		a.writeProblem(w, a.problemOf(r.Context(), outageNothingDone, err))
		return
	}
	if stored != nil {
		a.writeStored(w, stored)
		return
	}
	a.doAndStore(w, r, o, request, do)
}

// doAndStore does a request, and keeps its answer before anybody is told.
func (a *API) doAndStore(w http.ResponseWriter, r *http.Request, o operation, request *postadjudication.IdempotentRequest, do func(http.ResponseWriter)) {
	recorded := &recorder{header: w.Header()}
	defer func() {
		ctx := context.WithoutCancel(r.Context()) // it is done, whoever still waits for it
		var err error
		if recorded.status >= 200 && recorded.status < 300 {
			err = request.Answer(ctx, recorded.response(o))
		} else {
			err = request.Drop(ctx)
		}
		if err != nil {
			a.log.Error("the answer to a request with an idempotency key was not kept", zap.Error(err))
		}
		if recorded.status == 0 {
			return // it broke
		}
		w.WriteHeader(recorded.status)
		if _, err := w.Write(recorded.body.Bytes()); err != nil {
			a.log.Debug("an answer was not read to its end", zap.Error(err))
		}
	}()
	do(recorded)
}

// requestDigest is of all that makes a request the same: who asks for what.
func requestDigest(r *http.Request, c Caller, body []byte) [32]byte {
	h := sha256.New()
	for _, part := range []string{"recourse request 1", c.Principal, r.Method, r.URL.Path, r.URL.RawQuery} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	h.Write(body)
	return [32]byte(h.Sum(nil))
}

func (a *API) writeStored(w http.ResponseWriter, stored *postadjudication.StoredResponse) {
	var headers map[string]string
	if err := json.Unmarshal([]byte(stored.Headers), &headers); err != nil {
		a.writeProblem(w, a.problemOf(context.Background(), outageOfAction, err))
		return
	}
	for k, v := range headers {
		w.Header().Set(k, v)
	}
	w.Header().Set(ReplayedHeader, "true")
	w.WriteHeader(stored.Status)
	if _, err := w.Write(stored.Body); err != nil {
		a.log.Debug("an answer was not read to its end", zap.Error(err))
	}
}

// recorder takes an answer down instead of giving it.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (t *recorder) Header() http.Header { return t.header }

func (t *recorder) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
}

func (t *recorder) Write(b []byte) (int, error) {
	t.WriteHeader(http.StatusOK)
	return t.body.Write(b)
}

// response is what is kept. A secret is shown once and not kept.
func (t *recorder) response(o operation) postadjudication.StoredResponse {
	headers := map[string]string{}
	for _, k := range storedHeaders {
		if v := t.header.Get(k); v != "" {
			headers[k] = v
		}
	}
	out := postadjudication.StoredResponse{Status: t.status, Body: t.body.Bytes()}
	if o.secret {
		var members map[string]json.RawMessage
		if json.Unmarshal(out.Body, &members) != nil {
			members = nil
		}
		delete(members, "token")
		out.Body, _ = json.Marshal(members) // raw messages that were just read
	}
	text, _ := json.Marshal(headers) // texts
	out.Headers = string(text)
	return out
}
