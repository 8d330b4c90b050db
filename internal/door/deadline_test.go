package door

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// An answer that takes longer than the server's write timeout still arrives.
func TestAnAnswerHasADeadlineOfItsOwn(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusOK)
		if _, err := io.WriteString(w, "done"); err != nil {
			t.Error(err)
		}
	}
	get := func(wrap func(http.ResponseWriter) http.ResponseWriter) (string, error) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(wrap(w)) }))
		defer s.Close()
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(resp.Body)
		if cerr := resp.Body.Close(); err == nil {
			err = cerr
		}
		return string(text), err
	}
	if text, err := get(func(w http.ResponseWriter) http.ResponseWriter { return &deadlineResponse{ResponseWriter: w} }); text != "done" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := get(func(w http.ResponseWriter) http.ResponseWriter { return w }); err == nil {
		t.Error("the server's write timeout cuts nothing off, so this test proves nothing")
	}
}
