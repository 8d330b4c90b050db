package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/door"
)

func TestAmbiguousRequestsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token := r.key("acme", access.Operator)
	for _, name := range []string{"Authorization", door.TenantHeader} {
		req := r.request(t.Context(), token, http.MethodGet, "/api/v1/breakers", "")
		req.Header[name] = []string{"Bearer " + token, "Bearer " + token}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s twice: %d, %v", name, resp.StatusCode, err)
		}
	}
	r.ask(token, http.MethodPost, "/api/v1/breakers/open", `{"reason":"x"}`, "Content-Type", "application/json; charset=utf-7").refused(http.StatusUnsupportedMediaType, "unsupported_media_type", "")
	r.ask(token, http.MethodPost, "/api/v1/breakers/open", `{"reason":"x"}`, "Content-Type", "application/json; charset=UTF-8").is(http.StatusOK)
	r.ask(token, http.MethodGet, "/api/v1/events?after=9223372036854775807", "").refused(http.StatusUnprocessableEntity, "invalid", "after")
}

func TestAnIdempotencyKeyIsItsPrincipalsAndReadsAreNotStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := r.keyOf("user:ben", time.Time{}, access.Operator)
	for _, token := range []string{r.key("acme", access.Operator), other} {
		r.ask(token, http.MethodPost, "/api/v1/breakers/open", `{"reason":"x"}`, idempotency, "ticket-17").is(http.StatusOK)
	}
	r.ask(other, http.MethodHead, "/api/v1/breakers", "", idempotency, "look")
	if n := r.count(`SELECT count(*) FROM recourse.requests`); n != 2 {
		t.Errorf("%d requests are kept", n)
	}
	r.ask(other, http.MethodPost, "/api/v1/breakers/open", `{"reason":"x"}`, idempotency, strings.Repeat("k", 256)).refused(http.StatusUnprocessableEntity, "invalid", idempotency)
}

func TestPagesAreNeitherFramedNorServedUnderAnotherHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *app.Options) { o.RequireKeys = false })
	for _, path := range []string{"/", "/metrics", "/readyz", "/asynqmon"} {
		a := r.ask("", http.MethodGet, path, "")
		if !strings.Contains(a.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, a.header)
		}
		if a := r.ask("", http.MethodGet, path, "", "Host", "evil.example"); path != "/asynqmon" && a.status != http.StatusForbidden {
			t.Errorf("%s under another name: %d", path, a.status)
		}
	}
}
