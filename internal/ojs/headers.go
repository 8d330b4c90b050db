package ojs

import (
	"net/http"
	"strings"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

const (
	mediaType       = "application/openjobspec+json"
	versionHeader   = "OJS-Version"
	requestIDHeader = "X-Request-Id"
	maxRequestID    = 128 // bytes
)

// requestID returns the id that a client gave a request, or a new one if it gave none that can be
// repeated.
func requestID(r *http.Request) string {
	given := r.Header.Get(requestIDHeader)
	unprintable := func(c rune) bool { return c <= ' ' || c > '~' }
	if given == "" || len(given) > maxRequestID || strings.ContainsFunc(given, unprintable) {
		return "req_" + uuid.Must(uuid.NewV7()).String()
	}
	return given
}

// setFrame sets the headers of every answer.
func setFrame(h http.Header, requestID string) {
	h.Set(versionHeader, spec.Version)
	h.Set("Content-Type", mediaType)
	h.Set(requestIDHeader, requestID)
}

// write writes an answer. A status of 0 is 200.
func (s *Server) write(w http.ResponseWriter, status int, body []byte) {
	if status == http.StatusNoContent {
		w.Header().Del("Content-Type")
	}
	if status != 0 {
		w.WriteHeader(status)
	}
	if len(body) == 0 {
		return
	}
	if _, err := w.Write(append(body, '\n')); err != nil {
		s.log.Debug("failed to write an answer", zap.Error(err))
	}
}
