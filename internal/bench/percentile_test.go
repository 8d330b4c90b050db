package main

import (
	"testing"
	"time"
)

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
