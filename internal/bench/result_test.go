package main

import (
	"strings"
	"testing"
	"time"
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

func TestPercentileIsTheNearestRank(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i) // 100..1, unsorted on purpose
	}
	tests := []struct {
		name   string
		values []time.Duration
		p      float64
		want   time.Duration
	}{
		{"none", nil, .5, 0},
		{"one", []time.Duration{7}, .99, 7},
		{"lowest", hundred, 0, 1},
		{"half of a hundred", hundred, .5, 50},
		{"99 of a hundred", hundred, .99, 99},
		{"all", hundred, 1, 100},
		{"half of three", []time.Duration{3, 1, 2}, .5, 2},
		{"99 of three", []time.Duration{3, 1, 2}, .99, 3},
		{"negative", []time.Duration{-5, 5}, .5, -5},
	}
	for _, tt := range tests {
		if got := percentile(tt.values, tt.p); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("percentile reordered its input")
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{[]float64{4}, 4}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median of %v is %v, want %v", tt.values, got, tt.want)
		}
	}
}
