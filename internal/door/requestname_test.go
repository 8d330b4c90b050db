package door

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestARequestIsLoggedWithoutSecretsAndNotAtAnyLength(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("a", 100<<10)
	for path, want := range map[string]string{
		"/api/v1/breakers":              "GET /api/v1/breakers",
		"/api/v1/keys/4111111111111111": "GET /api/v1/keys/[card]",
		"/api/v1/password=hunter2/x y":  "GET /api/v1/password=[redacted] y",
		long:                            "GET " + long[:maxRequestName/2-len("GET ")] + " [cut]",
	} {
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}}
		if got := requestName(r); got != want {
			t.Errorf("%.40q: %.60q (%d bytes), want %.60q (%d)", path, got, len(got), want, len(want))
		}
	}
}
