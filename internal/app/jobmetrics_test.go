package app

import (
	"strconv"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

func TestClientsDoNotChooseHowManyLabelsThereAre(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	die := func(queue string, remote bool) {
		m.countTransition(background.Transition{Event: receipts.DeadLettered}, background.Run{Remote: remote, Queue: queue, Target: "a.b", State: background.DeadLettered})
	}
	die("settlement", false)
	for i := range 3 * maxLabels {
		die("q"+strconv.Itoa(i), true)
	}
	die("q0", true)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "ojs_dead_letter_added_total" {
			continue
		}
		for _, one := range f.GetMetric() {
			counts[one.GetLabel()[0].GetValue()] = one.GetCounter().GetValue()
		}
	}
	if len(counts) != maxLabels+1 || counts["q0"] != 2 || counts[otherLabels] != 2*maxLabels {
		t.Errorf("%v", counts)
	}
}
