package escrowhttp_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
	"github.com/recourse-dev/recourse/settlement"
)

// An escrow service speaks the protocol of this package. Its executor is given to a service as Config.Executor; here
// it is called by hand.
func ExampleNew() {
	var mu sync.Mutex
	executed := map[string]bool{} // by operation key
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		key, status := strings.TrimPrefix(r.URL.Path, "/v1/executions/"), "executed"
		if r.Method == http.MethodPost {
			key = r.Header.Get("Idempotency-Key")
			if executed[key] {
				status = "already_executed"
			}
			executed[key] = true
		}
		if !executed[key] {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"operation_key":%q,"status":"not_executed"}`, key)
			return
		}
		fmt.Fprintf(w, `{"operation_key":%q,"status":%q,"moved":{"minor":12500,"currency":"EUR"},"reference":"pay_1"}`, key, status)
	}))
	defer service.Close()

	executor, err := escrowhttp.New(escrowhttp.Config{
		BaseURL: service.URL, Header: http.Header{"Authorization": {"Bearer ..."}}, KeyLifetime: escrow.Forever,
		Table: map[int]escrowhttp.Verdict{http.StatusConflict: {Class: escrow.NotExecuted, Retry: true, Type: "bank.busy"}}, // 409 means that nothing was paid
	})
	if err != nil {
		panic(err)
	}
	defer executor.Close()
	fmt.Println(executor.Address() == service.URL+"/v1/executions", executor.InFlight())

	ctx := context.Background()
	call := escrow.Call{
		OperationKey: sha256.Sum256([]byte("one")), Request: []byte(`{"amount":{"currency":"EUR","minor":12500}}`),
		Outcome: settlement.Release, Amount: settlement.Money{Minor: 125_00, Currency: "EUR"}, Generation: 1,
	}
	for _, ask := range []func(context.Context, escrow.Call) escrow.Answer{executor.Lookup, executor.Execute, executor.Execute, executor.Lookup} {
		answer := ask(ctx, call)
		fmt.Printf("%s %d %q\n", answer.Class, answer.Moved, answer.Reference)
	}
	// Output:
	// true 1m0s
	// not_executed 0 ""
	// executed 12500 "pay_1"
	// executed 12500 "pay_1"
	// executed 12500 "pay_1"
}
