package app

import (
	"maps"
	"strconv"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

func TestClientsDoNotChooseHowManyLabelsThereAre(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	die := func(queue string, remote bool) {
		m.countDeath(background.Run{Remote: remote, Queue: queue, Target: "a.b", State: background.DeadLettered})
	}
	die("settlement", false)
	for i := range 3 * maxLabels {
		die("q"+strconv.Itoa(i), true)
	}
	die("q0", true)
	counts := byQueue(t, m, "ojs_dead_letter_added_total")
	if len(counts) != maxLabels+1 || counts["q0"] != 2 || counts[otherLabels] != 2*maxLabels {
		t.Errorf("%v", counts)
	}
	for i := range 3 * maxLabels {
		m.jobs.countReceipt(background.Run{Remote: true, Queue: "q" + strconv.Itoa(i)}, receipts.RetentionExpired, "system:retention")
	}
	if counts := byQueue(t, m, "ojs_dead_letter_pruned_total"); len(counts) != maxLabels+1 || counts["q0"] != 1 || counts[otherLabels] != 2*maxLabels {
		t.Errorf("%v", counts)
	}
}

// byQueue returns the counts of a metric by its first label.
func byQueue(t *testing.T, m *metrics, name string) map[string]float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, one := range f.GetMetric() {
			counts[one.GetLabel()[0].GetValue()] = one.GetCounter().GetValue()
		}
	}
	return counts
}

func TestRetriedAndPrunedDeadLettersOfJobsAreCounted(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	for _, queue := range []string{"mail", "sms"} {
		m.countDeath(background.Run{Remote: true, Queue: queue, State: background.DeadLettered})
	}
	for _, r := range []struct {
		remote  bool
		subtype receipts.Subtype
		actor   string
	}{
		{true, receipts.ManualRetryRequested, "user:ada"}, {true, receipts.Replayed, "user:ada"}, {true, receipts.ManualRetryRequested, "user:ada"}, // alone and by a plan
		{true, receipts.ManualRetryRequested, "rule:night"}, {true, receipts.Replayed, "rule:night"}, // replayed
		{true, receipts.Purged, "user:ada"}, {true, receipts.RetentionEnding, "system:retention"}, {true, receipts.RetentionExpired, "system:retention"},
		{false, receipts.ManualRetryRequested, "user:ada"}, {false, receipts.RetentionExpired, "system:retention"}, // of a settlement
	} {
		m.jobs.countReceipt(background.Run{Remote: r.remote, Queue: "mail"}, r.subtype, r.actor)
	}
	for name, want := range map[string]map[string]float64{"ojs_dead_letter_retried_total": {"mail": 2, "sms": 0}, "ojs_dead_letter_pruned_total": {"mail": 1, "sms": 0}} {
		if got := byQueue(t, m, name); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
