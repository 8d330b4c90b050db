package main

import (
	"strings"
	"testing"
)

func TestRatiosCompareWithinARound(t *testing.T) {
	t.Parallel()
	at := func(system string, round int, speed float64) result {
		return result{System: system, Workload: settleWorkload, Round: round, Tasks: 10, Metrics: metrics{perSecond: speed}}
	}
	all := []result{at(recourse, 1, 300), at(byHand, 1, 100), at(river, 1, 50), at(recourse, 2, 80), at(byHand, 2, 40)}
	ratios(all)
	for i, want := range []struct{ hand, river float64 }{{3, 6}, {}, {}, {2, 0}, {}} {
		if got := all[i].Metrics; got[ratioToAsynq] != want.hand || got[ratioToRiver] != want.river {
			t.Errorf("%s in round %d: %v, %v; want %v", all[i].System, all[i].Round, got[ratioToAsynq], got[ratioToRiver], want)
		}
	}
}

func TestTablesShowMedians(t *testing.T) {
	t.Parallel()
	o := options{systems: []string{recourse, river}, workloads: []string{drainWorkload}, rounds: 3, tasks: 10}
	var all []result
	for i, speed := range []float64{900, 100, 500} {
		all = append(all, result{System: recourse, Workload: drainWorkload, Round: i + 1, Tasks: 10, Metrics: metrics{perSecond: speed}})
	}
	var out strings.Builder
	if err := writeTables(&out, o, all); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), " 500 ") || strings.Contains(out.String(), " 900 ") || strings.Contains(out.String(), river+" ") {
		t.Errorf("want one row with the median 500:\n%s", out.String())
	}
}
