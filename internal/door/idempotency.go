package door

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication"
)

// ReplayedHeader marks an answer that repeats an earlier one, unless its door has another header for it.
const ReplayedHeader = "Idempotency-Replayed"

// Idempotency is what a door does with an Idempotency-Key that other doors do otherwise.
type Idempotency struct {
	ReplayedHeader string                 // marks an answer that repeats an earlier one; empty: ReplayedHeader
	CheckKey       func(key string) error // refuses a key that is not of the door's form; may be nil
	PerRoute       bool                   // the keys of each route are apart: one key may be used at two
	// IsFinal reports whether a refusal is stored as an answer is. Others free the key. nil: none is.
	IsFinal func(refused *Refusal) bool
}

// storedHeaders are the headers that are stored with an answer and repeated with it.
var storedHeaders = []string{"Content-Type", "Location"}

// doOnce handles a request once per Idempotency-Key and repeats the stored answer. A refusal changed nothing,
// so it frees the key. Two do not: one that the door stores, and one after an earlier, interrupted try of the
// request, which may have changed something. After a failure it is not known what was done: the caller is
// told so, and can send the request again at once, under the same key. If the process dies during the
// request, it can be sent again after two minutes. Then the guard of the action keeps it from acting twice; a
// fork that was made is returned by its RequestID.
func (m *Mux) doOnce(w http.ResponseWriter, r *http.Request, route Route, keys []string, body []byte, do Handler) error {
	key, c, err := m.idempotencyKey(r, keys)
	if err != nil {
		return err
	}
	stored, begun, err := m.begin(r, c, key, body)
	switch {
	case err != nil:
		return m.door.refusalOf(r.Context(), OutageNothingDone, err)
	case stored != nil:
		return m.writeStored(w, stored)
	}
	m.doAndStore(w, r, route, begun, func(w http.ResponseWriter) (keepRefusal bool) {
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, begun.ID()))
		err := do(w, r, c, body)
		if err == nil {
			return false // no refusal, or one that do wrote itself: the status of the answer decides
		}
		refused := m.door.RefusalOf(r.Context(), err)
		m.Refuse(w, r, refused)
		return m.format.Idempotency.IsFinal != nil && m.format.Idempotency.IsFinal(refused)
	})
	return nil
}

// idempotencyKey returns the key that a request is stored under. A door that has no form of its own takes a key
// as RFC 9651 writes a string, in quotes, and without quotes: both are the same key.
func (m *Mux) idempotencyKey(r *http.Request, given []string) (key string, c Caller, err error) {
	c = CallerOf(r.Context())
	if len(given) != 1 {
		return "", c, NewRefusal(http.StatusUnprocessableEntity, "invalid", "give one Idempotency-Key").WithField("Idempotency-Key", "is given twice")
	}
	key = given[0]
	check := m.format.Idempotency.CheckKey
	quoted := check == nil && strings.HasPrefix(key, `"`)
	if quoted {
		item, err := httpsfv.UnmarshalItem(given)
		text, is := item.Value.(string)
		if err != nil || !is {
			return "", c, NewRefusal(http.StatusBadRequest, "malformed", "the Idempotency-Key can't be read").
				WithField("Idempotency-Key", `begins with a quotation mark, but is no string in quotes: write "abc" or abc, and \" and \\ for the characters " and \ within quotes`)
		}
		key = text
	}
	if len(key) > 255 {
		return "", c, NewRefusal(http.StatusUnprocessableEntity, "invalid", "the Idempotency-Key is too long").WithField("Idempotency-Key", "must be 1 to 255 bytes of plain text")
	}
	if check != nil {
		if err := check(key); err != nil {
			return "", c, err
		}
	}
	if quoted {
		// Earlier versions took the quotes for a part of the key: what they stored is found under them.
		if stored, err := m.door.service.HasRequest(r.Context(), c.Tenant, m.ownKey(r, c, given[0])); err != nil {
			return "", c, m.door.refusalOf(r.Context(), OutageNothingDone, err)
		} else if stored {
			key = given[0]
		}
	}
	return m.ownKey(r, c, key), c, nil
}

// ownKey returns a key that no other principal, and with PerRoute no other route, has.
func (m *Mux) ownKey(r *http.Request, c Caller, key string) string {
	switch {
	case key != "" && m.format.Idempotency.PerRoute:
		scope := sha256.Sum256([]byte(r.Pattern + "\n" + key))
		return c.Principal + " " + hex.EncodeToString(scope[:])
	case key != "":
		return c.Principal + " " + key
	}
	return "" // BeginRequest refuses it
}

// begin begins a request whose body is compared by what it means: the order of its members, blanks between them and
// the form of its numbers don't matter. Earlier versions compared the bytes. What they stored is compared so too,
// so that their requests stay the same requests.
func (m *Mux) begin(r *http.Request, c Caller, key string, body []byte) (*postadjudication.StoredResponse, *postadjudication.IdempotentRequest, error) {
	meaning := meaningOf(body)
	stored, begun, err := m.door.service.BeginRequest(r.Context(), c.Tenant, key, requestDigest(r, c, meaning))
	if errors.Is(err, postadjudication.ErrRequestMismatch) && !bytes.Equal(meaning, body) {
		return m.door.service.BeginRequest(r.Context(), c.Tenant, key, requestDigest(r, c, body))
	}
	return stored, begun, err
}

// meaningOf returns the RFC 8785 canonical form of a body, but with all digits of whole numbers, of which that form
// keeps 53 bits. It returns a body that is not JSON as it is.
func meaningOf(body []byte) []byte {
	form := jsontext.Value(bytes.Clone(body))
	if err := form.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return body
	}
	return form
}

type requestIDKey struct{}

// RequestID identifies a request with an Idempotency-Key, the same each time that it is sent again; empty
// without one. What a request makes is recorded with it: an earlier handler of the request may have made it,
// and have died before the answer was stored, or be slow.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// doAndStore handles a request, and stores its answer before the caller gets it. If the answer can't be
// stored that is logged, and the caller gets it all the same: the request was handled.
func (m *Mux) doAndStore(w http.ResponseWriter, r *http.Request, route Route, begun *postadjudication.IdempotentRequest, do func(http.ResponseWriter) (final bool)) {
	final := false
	recorded := &recorder{header: w.Header()}
	defer func() {
		ctx := context.WithoutCancel(r.Context()) // the request was handled, so its answer is stored even if the caller left
		var err error
		switch {
		case recorded.status >= 200 && recorded.status < 300, final && recorded.status >= 400 && recorded.status < 500:
			if answer, unsafe := recorded.response(route.Secret, m.format.Headers); unsafe == nil {
				err = begun.Answer(ctx, answer)
			} else {
				err = errors.Join(unsafe, begun.Interrupt(ctx))
			}
		case recorded.status >= 400 && recorded.status < 500 && begun.FirstBegan().IsZero():
			err = begun.Drop(ctx)
		default:
			err = begun.Interrupt(ctx)
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
	final = do(recorded)
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
	w.Header().Set(cmp.Or(m.format.Idempotency.ReplayedHeader, ReplayedHeader), "true")
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

// response returns the answer to store, without the member that may be shown only once. It returns an error if
// the body of such an answer is not a JSON object.
func (t *recorder) response(secret string, more []string) (postadjudication.StoredResponse, error) {
	headers := map[string]string{}
	for _, k := range slices.Concat(storedHeaders, more) {
		if v := t.header.Get(k); v != "" {
			headers[k] = v
		}
	}
	out := postadjudication.StoredResponse{Status: t.status, Body: t.body.Bytes()}
	if secret != "" {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(out.Body, &members); err != nil {
			return postadjudication.StoredResponse{}, fmt.Errorf("door: the answer with the member %s is not a JSON object: %w", secret, err)
		}
		delete(members, secret)
		out.Body, _ = json.Marshal(members) // can't fail: valid raw messages
	}
	text, _ := json.Marshal(headers) // can't fail: strings
	out.Headers = string(text)
	return out, nil
}
