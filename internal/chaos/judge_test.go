package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/postadjudication"
)

// A judgement that finds nothing means something only if it can find something.
func TestTheJudgeFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	h := s.worker("")
	s.submit(h, adjudication(1, "ok", ""), adjudication(2, "refused", ""))
	s.atRest()
	s.quit(h)
	s.sound()

	for name, tc := range map[string]struct {
		spoil func(*testing.T, *accepted)
		want  string
	}{
		"a run that was accepted and is gone": {func(_ *testing.T, a *accepted) {
			a.note(adjudication(3, "ok", ""), worker.Reply{Reply: postadjudication.Created, Run: "01890000-0000-7000-8000-000000000000"})
		}, "was accepted and does not exist"},
		"a plain run that is gone": {func(_ *testing.T, a *accepted) {
			a.noteOther(worker.Reply{Reply: postadjudication.Created, Run: "01890000-0000-7000-8000-000000000000"})
		}, "was accepted and does not exist"},
		"a payment that Recourse knows nothing of": {func(t *testing.T, _ *accepted) {
			pay(t, s.escrow.URL(), strings.Repeat("ab", 32), "txr_foreign")
		}, "of which no receipt tells"},
		"a case that was paid twice": {func(t *testing.T, _ *accepted) {
			pay(t, s.escrow.URL(), strings.Repeat("cd", 32), "txr_1")
		}, "effects too many"},
	} {
		a := newAccepted()
		for run, ad := range s.accepted.runs {
			a.name(ad)
			a.note(ad, worker.Reply{Reply: postadjudication.Created, Run: run})
		}
		tc.spoil(t, a)
		v, err := judge(s.ctx(), s.service, s.escrow, a)
		if err != nil || !slices.ContainsFunc(v.Broken, func(b string) bool { return strings.Contains(b, tc.want) }) {
			t.Errorf("%s: found %q, %v", name, v.Broken, err)
		}
	}
}

func TestTheJudgeTakesNothingUnfinished(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	h := s.worker("", func(c *worker.Settings) { c.Only = true })
	s.submit(h, adjudication(1, "ok", ""))
	v, err := judge(s.ctx(), s.service, s.escrow, s.accepted)
	if err != nil || len(v.Broken) != 1 || !strings.Contains(v.Broken[0], "is still pending") {
		t.Errorf("found %q, %v", v.Broken, err)
	}
}

// pay has the escrow service pay what nobody handed over.
func pay(t *testing.T, escrow, key, transaction string) {
	t.Helper()
	body := `{"tenant":"chaos","transaction_receipt_id":"` + transaction + `","escrow_reference":"esc_foreign_` + transaction + `","outcome":"release","generation":1,
		"amount":{"minor":1000,"currency":"EUR"},"held":{"minor":1000,"currency":"EUR"}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, escrow+"/v1/executions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", resp, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
}
