package receipts_test

import (
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// These links were computed apart from this package, from the bodies and the rule in the package comment.
// If this test fails, receipts already stored no longer verify: the format has changed.
func TestGoldenChainNeverChanges(t *testing.T) {
	t.Parallel()
	links := []string{
		"f93e8ec5e5e3a8d36ec694c3b9f13da415a4928ec7b3b8bafce8481da37c5ab9",
		"766cb939462856ed9ea264d396c03a9bb613babbba7fb0b0c0720f9249f6b0e7",
		"c94e0c8e5d68fd93588eaa15ff3f6f53d81041820962d33c71b45738a3a97ed0",
		"ba4b656597e18c964c7278d017a1ac048497dd152a08844f4a75044621f74427",
		"5876906e4796e5698200d40cb7948cdfa31a3028c6d4692436dd8b10255df57c",
		"3a6ef67d62c252df170cee3a9d8121ac1216df5a008af7f85342481507845ea5",
		"630bc6fc1c516c07710987debcaca8cbcda5c39f9c1466105deb62f71ee229a4",
		"186f6a9448eb3ac32365874504b1d9a93203e77f983c334b6e5e016c950e00d6",
	}
	g := receipts.Genesis(testCase)
	if got := hex.EncodeToString(g.Link[:]); got != "7e804babb09ed625faed4e0fb35a9895886851da03630e2c5359a8205c6f19f7" || g.Seq != 0 {
		t.Errorf("genesis = %d %s", g.Seq, got)
	}
	rs, head := chained(t, testCase, sampleDrafts()...)
	if len(rs) != len(links) {
		t.Fatalf("%d receipts, want %d", len(rs), len(links))
	}
	for i, r := range rs {
		if got := hex.EncodeToString(r.Link[:]); got != links[i] {
			t.Errorf("link %d = %s, want %s", r.Seq, got, links[i])
		}
	}
	if head.Seq != 8 || hex.EncodeToString(head.Link[:]) != links[7] {
		t.Errorf("head = %d %x", head.Seq, head.Link)
	}
}

func TestGoldenBody(t *testing.T) {
	t.Parallel()
	const want = `{"actor":"worker-1","at":"2026-03-01T11:00:02.123456Z","case":"01934b2e-7c00-7abc-8def-0123456789ab",` +
		`"payload":{"attempt":1,"attempt_class":"unknown","budget_spent":1,"duration_us":1000000,"error":{"code":"deadline",` +
		`"message":"no answer \"at all\"` + "\u2028— \U0001F4B8" + `","type":"timeout"},"next_retry_at":"2026-03-01T11:00:03.123456Z",` +
		`"outcome_class":"unknown","unknown_open":1},"run":"01934b2e-7c00-7000-8000-00000000000a",` +
		`"source":"post_adjudication_retry","subtype":"retry-scheduled","tenant":"acme"}`
	rs, _ := chained(t, testCase, sampleDrafts()...)
	if got := string(rs[2].Body); got != want {
		t.Errorf("body:\n%s\nwant:\n%s", got, want)
	}
}

func TestChainContinuesAsOneCallWould(t *testing.T) {
	t.Parallel()
	all, want := chained(t, testCase, sampleDrafts()...)
	head := receipts.Genesis(testCase)
	for i, d := range sampleDrafts() {
		rs, next, err := receipts.Chain(testCase, "acme", head, d)
		if err != nil || rs[0].Link != all[i].Link || rs[0].Seq != int64(i+1) {
			t.Fatalf("receipt %d: %v, %v", i+1, rs, err)
		}
		head = next
	}
	if head != want {
		t.Errorf("head %v, want %v", head, want)
	}
}

func TestChainGivesColumnsAsTheBodySaysThem(t *testing.T) {
	t.Parallel()
	rs, _ := chained(t, testCase, sampleDrafts()...)
	r := rs[0]
	at := time.Date(2026, 3, 1, 11, 0, 0, 123456000, time.UTC)
	if r.At != at || r.Source != receipts.SourceExecution || r.Subtype != receipts.Submitted || r.Tenant != "acme" || r.Run != runA || r.Actor != "escrow-desk" {
		t.Errorf("columns %+v", r)
	}
	if got, want := r.ID(), "01934b2e-7c00-7abc-8def-0123456789ab.1"; got != want {
		t.Errorf("ID = %s, want %s", got, want)
	}
	p, err := r.Payload()
	if err != nil || p.Amount != 12500 || p.Settlement.Reserved != 12500 {
		t.Errorf("payload %+v, %v", p, err)
	}
}

func TestChainRefusesAllOrNothing(t *testing.T) {
	t.Parallel()
	drafts := sampleDrafts()
	drafts[3].Actor = ""
	head := receipts.Genesis(testCase).Next([]byte("x"))
	rs, next, err := receipts.Chain(testCase, "acme", head, drafts...)
	var field *receipts.FieldError
	if rs != nil || next != head || !errors.As(err, &field) || field.Field != "actor" {
		t.Fatalf("%v, %v, %v", rs, next, err)
	}
	wantError(t, err, "draft 3")
}

func TestCasesBeginApart(t *testing.T) {
	t.Parallel()
	if receipts.Genesis(numberedCase(1)) == receipts.Genesis(numberedCase(2)) {
		t.Error("two cases share a beginning: a chain could be moved from one to the other")
	}
}
