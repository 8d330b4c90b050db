package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/client"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// newTestClient returns a client of a test server with a handler.
func newTestClient(t *testing.T, answer http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{URL: server.URL, Key: "rck_aaaa_bbbb"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// problemHandler returns a handler that answers with a problem.
func problemHandler(status int, problem string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, problem) // a lost answer fails the test anyway
	}
}

func TestAConfigThatCannotBeMeantIsRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "ftp://x", "http://user:secret@x", "http://x/api/v1", "http://x?a=b", "https://"} {
		if _, err := client.New(client.Config{URL: url}); !errors.Is(err, client.ErrURL) {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := client.New(client.Config{URL: "https://x", Key: "two words"}); !errors.Is(err, client.ErrKey) {
		t.Error(err)
	}
	var insecure *client.InsecureError
	if _, err := client.New(client.Config{URL: "http://x.invalid:1", Key: "rck_a"}); !errors.As(err, &insecure) || insecure.Host != "x.invalid:1" {
		t.Error(err)
	}
	for _, c := range []client.Config{{URL: "http://127.0.0.1:1", Key: "rck_a"}, {URL: "http://x.invalid:1"}, {URL: "http://x.invalid:1", Key: "rck_a", Insecure: true}} {
		if _, err := client.New(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A request that changes something is sent again under the same key if its answer was lost, or
// if the server asks for it; a request that only reads is sent once.
func TestALostAnswerIsRequestedAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // a request whose connection ends has no order with the next
	var keys []string
	c := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		first := len(keys) == 1
		mu.Unlock()
		if first || r.Method == http.MethodGet {
			panic(http.ErrAbortHandler) // the connection ends without an answer
		}
		problemHandler(http.StatusOK, `{"held":true}`)(w, r)
	})
	run := receipts.RunID(uuid.New())
	held, err := c.DeadLetters.Hold(t.Context(), run, "in court")
	mu.Lock()
	if err != nil || !held.Held || len(keys) != 2 || keys[0] == "" || keys[0] != keys[1] {
		t.Errorf("%v, %v: %v", held, err, keys)
	}
	mu.Unlock()
	var lost *client.UnreachableError
	if _, err := c.Cases.Run(t.Context(), run); !errors.As(err, &lost) || lost.Host == "" {
		t.Error(err)
	}
}

// A refusal is returned as the library's error for it, if it has one.
func TestRefusalsAreThoseOfTheLibrary(t *testing.T) {
	t.Parallel()
	run := receipts.RunID(uuid.New())
	ask := func(status int, problem string) error {
		_, err := newTestClient(t, problemHandler(status, problem)).DeadLetters.Hold(t.Context(), run, "in court")
		return err
	}
	if err := ask(http.StatusNotFound, `{"status":404,"code":"not_found"}`); !errors.Is(err, refusal.ErrNotFound) {
		t.Error(err)
	}
	var field *refusal.FieldError
	if err := ask(http.StatusUnprocessableEntity, `{"status":422,"code":"invalid","errors":[{"field":"reason","problem":"is too long"}]}`); !errors.As(err, &field) || field.Field != "reason" {
		t.Error(err)
	}
	var refused *refusal.RefusedError
	if err := ask(http.StatusConflict, `{"status":409,"code":"not_held","run_id":"`+run.String()+`"}`); !errors.As(err, &refused) || refused.Gate != "not_held" || refused.Run != run {
		t.Error(err)
	}
	meaning := refusal.GateReconcileFirst.Meaning()
	if err := ask(http.StatusConflict, `{"status":409,"code":"reconcile_first","run_id":"`+run.String()+`","detail":"`+meaning+`; the lookup decided nothing"}`); !errors.As(err, &refused) || refused.Because != "the lookup decided nothing" {
		t.Error(err)
	}
	var second *bulk.SecondPersonError
	if err := ask(http.StatusAccepted, `{"status":202,"code":"second_person_required","plan":{"actor":"user:ada"}}`); !errors.As(err, &second) || second.Plan.Actor != "user:ada" || second.Because != "" {
		t.Error(err)
	}
	var problem *client.ProblemError
	if err := ask(http.StatusForbidden, `{"status":403,"code":"role_missing","needs_one_of":["operator"]}`); !errors.As(err, &problem) || problem.Unavailable() || problem.Needs[0] != "operator" {
		t.Error(err)
	}
	var described *client.ProblemError
	if err := ask(http.StatusBadGateway, `<html>`); err == nil || errors.As(err, &described) {
		t.Errorf("an answer that is no problem of this API: %v", err)
	}
}
