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

// Replayed says of an answer that it is the one given before.
const Replayed = "Idempotency-Replayed"

// kept are the headers of an answer that are repeated with it.
var kept = []string{"Content-Type", "Location"}

// once does a request once, however often it comes under its Idempotency-Key, and
// repeats the answer. What was refused changed nothing: its key is free again. When
// the process dies over it, the same request is done again two minutes later at the
// earliest, and the action's own guard keeps it from acting twice.
func (a *API) once(w http.ResponseWriter, r *http.Request, o operation, c Caller, keys []string, body []byte, do func(http.ResponseWriter)) {
	if len(keys) != 1 {
		a.say(w, newProblem(http.StatusUnprocessableEntity, "invalid", "give one Idempotency-Key").with("Idempotency-Key", "is given twice"))
		return
	}
	if len(keys[0]) > 255 {
		a.say(w, newProblem(http.StatusUnprocessableEntity, "invalid", "the Idempotency-Key is too long").with("Idempotency-Key", "must be 1 to 255 bytes of plain text"))
		return
	}
	own := keys[0] // empty: refused as it is
	if own != "" {
		own = c.Principal + " " + own // nobody takes a key from another principal
	}
	before, request, err := a.service.BeginRequest(r.Context(), c.Tenant, own, digest(r, c, body))
	if err != nil {
		a.say(w, a.refuse(r.Context(), notBegun, err))
		return
	}
	if before != nil {
		a.repeat(w, before)
		return
	}
	a.work(w, r, o, request, do)
}

// work does a request, and keeps its answer before anybody is told.
func (a *API) work(w http.ResponseWriter, r *http.Request, o operation, request *postadjudication.Request, do func(http.ResponseWriter)) {
	taken := &taking{header: w.Header()}
	defer func() {
		ctx := context.WithoutCancel(r.Context()) // it is done, whoever still waits for it
		var err error
		if taken.status >= 200 && taken.status < 300 {
			err = request.Answer(ctx, taken.answer(o))
		} else {
			err = request.Drop(ctx)
		}
		if err != nil {
			a.log.Error("the answer to a request with an idempotency key was not kept", zap.Error(err))
		}
		if taken.status == 0 {
			return // it broke
		}
		w.WriteHeader(taken.status)
		if _, err := w.Write(taken.body.Bytes()); err != nil {
			a.log.Debug("an answer was not read to its end", zap.Error(err))
		}
	}()
	do(taken)
}

// digest is of all that makes a request the same: who asks for what.
func digest(r *http.Request, c Caller, body []byte) [32]byte {
	h := sha256.New()
	for _, part := range []string{"recourse request 1", c.Principal, r.Method, r.URL.Path, r.URL.RawQuery} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	h.Write(body)
	return [32]byte(h.Sum(nil))
}

func (a *API) repeat(w http.ResponseWriter, before *postadjudication.StoredResponse) {
	var headers map[string]string
	if err := json.Unmarshal([]byte(before.Headers), &headers); err != nil {
		a.say(w, a.refuse(context.Background(), acted, err))
		return
	}
	for k, v := range headers {
		w.Header().Set(k, v)
	}
	w.Header().Set(Replayed, "true")
	w.WriteHeader(before.Status)
	if _, err := w.Write(before.Body); err != nil {
		a.log.Debug("an answer was not read to its end", zap.Error(err))
	}
}

// taking takes an answer down instead of giving it.
type taking struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (t *taking) Header() http.Header { return t.header }

func (t *taking) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
}

func (t *taking) Write(b []byte) (int, error) {
	t.WriteHeader(http.StatusOK)
	return t.body.Write(b)
}

// answer is what is kept. A secret is shown once and not kept.
func (t *taking) answer(o operation) postadjudication.StoredResponse {
	headers := map[string]string{}
	for _, k := range kept {
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
