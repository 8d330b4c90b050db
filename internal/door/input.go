package door

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
)

// DefaultMaxBody is the maximum length of a body in bytes, unless its route has another.
const DefaultMaxBody = 16 << 10

// maxUncountedBody is the length of a body in bytes beyond which it counts as a batch.
const maxUncountedBody = 64 << 10

// readBody reads a whole body, which must be empty or, unless handlers check it, one JSON object, and calls do
// with it. Until do returns it counts as a batch if it is longer than maxUncountedBody, or of unknown length on a
// route that takes so much. A body may take long to arrive, so the key of the caller is checked again behind it.
func (m *Mux) readBody(w http.ResponseWriter, r *http.Request, route Route, do func(body []byte) error) error {
	if err := m.CheckMediaType(r); err != nil {
		return err
	}
	most := cmp.Or(route.MaxBody, DefaultMaxBody)
	if most > maxUncountedBody && (r.ContentLength < 0 || r.ContentLength > maxUncountedBody) {
		length := most
		if r.ContentLength >= 0 {
			length = min(most, r.ContentLength)
		}
		release, err := m.door.AcquireBatch(CallerOf(r.Context()), length)
		if err != nil {
			return err
		}
		defer release()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return UnreadBody(err, most)
	}
	if err := m.door.CheckKeyOf(r.Context()); err != nil {
		return err
	}
	if len(body) == 0 {
		return do(nil)
	}
	if !m.format.HandlersCheckJSON {
		if err := strictjson.CheckObject(body); err != nil {
			return malformed(err)
		}
	}
	if route.CheckBody != nil {
		if err := route.CheckBody(body); err != nil {
			return err
		}
	}
	return do(body)
}

// CheckMediaType refuses a body whose Content-Type is not a media type of the door, in UTF-8, and one that is
// compressed. A request without a Content-Type passes, and so does one whose body is known to be empty.
func (m *Mux) CheckMediaType(r *http.Request) error {
	given := r.Header.Get("Content-Type")
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") && r.ContentLength != 0 {
		return NewRefusal(http.StatusUnsupportedMediaType, EncodingUnsupported, "send the body as it is, without Content-Encoding")
	}
	if given == "" || r.ContentLength == 0 {
		return nil
	}
	kind, params, err := mime.ParseMediaType(given)
	if err != nil || !slices.Contains(m.format.MediaTypes, kind) || !strings.EqualFold(cmp.Or(params["charset"], "utf-8"), "utf-8") {
		return NewRefusal(http.StatusUnsupportedMediaType, "unsupported_media_type", "send %s in UTF-8 (curl: --json)", strings.Join(m.format.MediaTypes, " or "))
	}
	return nil
}

// EncodingUnsupported is the code of a body that is compressed.
const EncodingUnsupported = "content_encoding_unsupported"

// malformed returns the refusal of a body that is invalid JSON.
func malformed(err error) *Refusal {
	refused := NewRefusal(http.StatusBadRequest, "malformed", "the body can't be read")
	var wrong *strictjson.Error
	if errors.As(err, &wrong) {
		return refused.WithField(redact.Text(wrong.Field), wrong.Problem)
	}
	return refused
}

// UnreadBody returns the refusal of a body that could not be read to its end: it is over the most
// bytes that it may have, or did not arrive in time.
func UnreadBody(err error, most int64) *Refusal {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return NewRefusal(http.StatusRequestEntityTooLarge, "too_large", "the body is over %d bytes", most)
	}
	return NewRefusal(http.StatusRequestTimeout, "too_slow", "the body did not arrive")
}

// checkQuery refuses an ambiguous query: one that can't be parsed, a parameter that is given
// twice, and one that is empty. A handler refuses unknown parameters.
func checkQuery(r *http.Request) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return NewRefusal(http.StatusBadRequest, "malformed", "the query can't be read")
	}
	refused := NewRefusal(http.StatusUnprocessableEntity, "invalid", "the query is invalid")
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(refused.Fields) == maxFields {
			break
		}
		switch given := values[name]; {
		case len(given) > 1:
			refused.WithField(redact.Text(name), "is given twice")
		case given[0] == "":
			refused.WithField(redact.Text(name), "is empty: leave it out")
		}
	}
	if len(refused.Fields) == 0 {
		return nil
	}
	return refused
}
