package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// An export ends with its key: what was read after the last check is not written.
func TestAnExportEndsWithItsKey(t *testing.T) {
	t.Parallel()
	written, ended, checks := httptest.NewRecorder(), errors.New("ended"), 0
	var state error
	w := &exportWriter{Writer: written, ctl: http.NewResponseController(anyDeadline{written}), checked: time.Now(), checkKey: func() error {
		checks++
		return state
	}}
	write := func(text string, want error) {
		t.Helper()
		if _, err := w.Write([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	write("a", nil)
	w.checked = time.Now().Add(-keyCheckInterval)
	write("b", nil)
	state = ended
	write("c", nil)
	w.checked = time.Now().Add(-keyCheckInterval)
	write("d", ended)
	write("e", ended)
	if text := written.Body.String(); text != "abc" || checks != 3 {
		t.Errorf("%q was written, the key was checked %d times", text, checks)
	}
}

// anyDeadline is a writer that takes any deadline.
type anyDeadline struct{ http.ResponseWriter }

func (anyDeadline) SetWriteDeadline(time.Time) error { return nil }
