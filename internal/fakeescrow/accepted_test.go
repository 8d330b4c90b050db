package fakeescrow

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

// A call that is accepted ends after Config.Late, paid or not, and until then no call and no lookup says how.
func TestACallIsAcceptedAndEndsLater(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]struct {
		lookup, call escrow.Class // once it has ended
		effects      int
	}{
		`"accept"`:          {escrow.Executed, escrow.Executed, 1},
		`"decline,refused"`: {escrow.NotExecuted, escrow.NotExecuted, 0}, `"decline,ok"`: {escrow.NotExecuted, escrow.Executed, 1},
	} {
		var now clock
		s := start(t, Config{Now: now.now, Late: time.Minute})
		e, err := escrowhttp.New(escrowhttp.Config{BaseURL: s.URL(), KeyLifetime: escrow.Forever, InFlight: -1, Asynchronous: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		c := testCase{name: "a", simulate: words}.call()
		for range 2 {
			if call, lookup := e.Execute(t.Context(), c), e.Lookup(t.Context(), c); !call.Accepted || !lookup.Accepted || len(s.Effects()) > 0 || !s.AcceptedOpen(c.OperationKey.String()) {
				t.Errorf("%s, before it has ended: %+v, %+v", words, call, lookup)
			}
			now.set(59 * time.Second)
		}
		now.set(time.Minute)
		if s.AcceptedOpen(c.OperationKey.String()) {
			t.Errorf("%s is still open once it has ended", words)
		}
		lookup := e.Lookup(t.Context(), c)
		call := e.Execute(t.Context(), c)
		if lookup.Class != want.lookup || call.Class != want.call || len(s.Effects()) != want.effects || s.DoubleEffects() != 0 {
			t.Errorf("%s, once it has ended: %+v, %+v, %d effects", words, lookup, call, len(s.Effects()))
		}
	}
}
