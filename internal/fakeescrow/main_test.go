package fakeescrow

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
	"github.com/recourse-dev/recourse/settlement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, c Config) *Service {
	t.Helper()
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func executor(t *testing.T, s *Service) *escrowhttp.Executor {
	t.Helper()
	e, err := escrowhttp.New(escrowhttp.Config{BaseURL: s.URL(), KeyLifetime: escrow.Forever, InFlight: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// testCase is a case on an escrow that holds 10000.
type testCase struct {
	name     string // of the transaction, and of its key
	escrow   string
	amount   int64
	held     int64
	simulate string // JSON
	outcome  string
	lookup   string // JSON
}

func (a testCase) call() escrow.Call {
	if a.escrow == "" {
		a.escrow = "esc_" + a.name
	}
	if a.amount == 0 {
		a.amount = 2501
	}
	if a.held == 0 {
		a.held = 10000
	}
	if a.outcome == "" {
		a.outcome = "release"
	}
	if a.lookup == "" {
		a.lookup = "null"
	}
	if a.simulate == "" {
		a.simulate = `"ok"`
	}
	return escrow.Call{
		OperationKey: escrow.OperationKey(sha256.Sum256([]byte(a.name))),
		Amount:       settlement.Money{Minor: a.amount, Currency: "USD"},
		Request: fmt.Appendf(nil, `{"adjudication_id":"adj_1","amount":{"currency":"USD","minor":%d},"escrow_reference":%q,`+
			`"generation":1,"held":{"currency":"USD","minor":%d},"outcome":%q,"payload":{"lookup":%s,"simulate":%s},`+
			`"submission_receipt_id":"sub_1","tenant":"northwind","transaction_receipt_id":%q}`,
			a.amount, a.escrow, a.held, a.outcome, a.lookup, a.simulate, "txr_"+a.name),
	}
}

// noon is a clock that always returns the same time.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
