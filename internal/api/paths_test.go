package api_test

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/access"
)

// What can't be stored as text names nothing. It is not handed to the database.
func TestAPathThatIsNoTextIsNotFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := r.keyOf("user:all", time.Time{}, access.Roles()...)
	for _, path := range []string{"/transactions/%00", "/transactions/%FF", "/transactions/a%C3", "/breakers/%00/history", "/breakers/%FF/history", "/rules/a%00b/history"} {
		r.ask(key, http.MethodGet, "/api/v1"+path, "").refused(http.StatusNotFound, "not_found", "")
	}
	r.ask(key, http.MethodDelete, "/api/v1/keys/%00aaaaaaaaaaa?reason=x", "").refused(http.StatusNotFound, "not_found", "")
	for _, line := range r.logs.FilterLevelExact(zap.ErrorLevel).All() {
		t.Errorf("%s %v", line.Message, line.ContextMap())
	}
}
