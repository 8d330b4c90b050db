package door

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication"
)

// ReplayedHeader marks an answer that repeats an earlier one.
const ReplayedHeader = "Idempotency-Replayed"

// storedHeaders are the headers that are stored with an answer and repeated with it.
var storedHeaders = []string{"Content-Type", "Location"}

// doOnce handles a request once per Idempotency-Key and repeats the stored answer. A refusal
// changed nothing, so it frees the key. If the process dies during the request, the same
// request can run again after two minutes at the earliest; the guard of the action keeps it
// from acting twice.
func (m *Mux) doOnce(w http.ResponseWriter, r *http.Request, route Route, keys []string, body []byte, do Handler) error {
	if len(keys) != 1 {
		return NewRefusal(http.StatusUnprocessableEntity, "invalid", "give one Idempotency-Key").WithField("Idempotency-Key", "is given twice")
	}
	if len(keys[0]) > 255 {
		return NewRefusal(http.StatusUnprocessableEntity, "invalid", "the Idempotency-Key is too long").WithField("Idempotency-Key", "must be 1 to 255 bytes of plain text")
	}
	c := CallerOf(r.Context())
	key := keys[0] // empty: BeginRequest refuses it
	if key != "" {
		key = c.Principal + " " + key // principals don't share keys
	}
	stored, begun, err := m.door.service.BeginRequest(r.Context(), c.Tenant, key, requestDigest(r, c, body))
	switch {
	case err != nil:
		return m.door.refusalOf(r.Context(), OutageNothingDone, err)
	case stored != nil:
		return m.writeStored(w, stored)
	}
	m.doAndStore(w, r, route, begun, func(w http.ResponseWriter) {
		if first := begun.FirstBegan(); !first.IsZero() {
			r = r.WithContext(context.WithValue(r.Context(), firstBeganKey{}, first))
		}
		if err := do(w, r, c, body); err != nil {
			m.Refuse(w, r, err)
		}
	})
	return nil
}

type firstBeganKey struct{}

// FirstBegan returns when a request with the same Idempotency-Key began first, whose process died before
// it stored an answer: it may have done what was asked. Zero if this is the first.
func FirstBegan(ctx context.Context) time.Time {
	first, _ := ctx.Value(firstBeganKey{}).(time.Time)
	return first
}

// doAndStore handles a request, and stores its answer before the caller gets it.
func (m *Mux) doAndStore(w http.ResponseWriter, r *http.Request, route Route, begun *postadjudication.IdempotentRequest, do func(http.ResponseWriter)) {
	recorded := &recorder{header: w.Header()}
	defer func() {
		ctx := context.WithoutCancel(r.Context()) // the request was handled, so its answer is stored even if the caller left
		var err error
		if recorded.status >= 200 && recorded.status < 300 {
			err = begun.Answer(ctx, recorded.response(route.Secret, m.format.Headers))
		} else {
			err = begun.Drop(ctx)
		}
		if err != nil {
			m.door.log.Error("failed to store the answer of a request with an idempotency key", zap.Error(err))
		}
		if recorded.status == 0 {
			return // do panicked
		}
		w.WriteHeader(recorded.status)
		if _, err := w.Write(recorded.body.Bytes()); err != nil {
			m.door.log.Debug("failed to write an answer", zap.Error(err))
		}
	}()
	do(recorded)
}

// requestDigest returns a hash of what makes two requests the same: principal, method, path,
// query and body.
func requestDigest(r *http.Request, c Caller, body []byte) [32]byte {
	h := sha256.New()
	for _, part := range []string{"recourse request 1", c.Principal, r.Method, r.URL.Path, r.URL.RawQuery} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	h.Write(body)
	return [32]byte(h.Sum(nil))
}

func (m *Mux) writeStored(w http.ResponseWriter, stored *postadjudication.StoredResponse) error {
	var headers map[string]string
	if err := json.Unmarshal([]byte(stored.Headers), &headers); err != nil {
		return err
	}
	for k, v := range headers {
		w.Header().Set(k, v)
	}
	w.Header().Set(ReplayedHeader, "true")
	w.WriteHeader(stored.Status)
	if _, err := w.Write(stored.Body); err != nil {
		m.door.log.Debug("failed to write an answer", zap.Error(err))
	}
	return nil
}

// recorder is a ResponseWriter that records an answer.
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

// response returns the answer to store, without the member that may be shown only once.
func (t *recorder) response(secret string, more []string) postadjudication.StoredResponse {
	headers := map[string]string{}
	for _, k := range slices.Concat(storedHeaders, more) {
		if v := t.header.Get(k); v != "" {
			headers[k] = v
		}
	}
	out := postadjudication.StoredResponse{Status: t.status, Body: t.body.Bytes()}
	if secret != "" {
		var members map[string]json.RawMessage
		if json.Unmarshal(out.Body, &members) != nil {
			members = nil
		}
		delete(members, secret)
		out.Body, _ = json.Marshal(members) // can't fail: valid raw messages
	}
	text, _ := json.Marshal(headers) // can't fail: strings
	out.Headers = string(text)
	return out
}
