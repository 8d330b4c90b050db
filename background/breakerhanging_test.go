package background

import (
	"testing"
	"time"
)

func TestCallsThatHangOpenTheBreakerWhenNobodyIsAnswered(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	for _, tc := range []struct {
		name  string
		state hangingCalls
		opens bool
	}{
		{"as many as may", hangingCalls{sinceChange: 16}, false},
		{"more than may, and nobody was ever answered", hangingCalls{sinceChange: 17}, true},
		{"more than may, and nobody was answered since the last of them began", hangingCalls{sinceChange: 17, lastAnswer: began.Add(-time.Nanosecond)}, true},
		{"more than may, and somebody was answered meanwhile", hangingCalls{sinceChange: 17, lastAnswer: began}, false},
		{"as many as may in any case", hangingCalls{sinceChange: 256, lastAnswer: began.Add(time.Second)}, false},
		{"more than may in any case", hangingCalls{sinceChange: 257, lastAnswer: began.Add(time.Second)}, true},
	} {
		if got := tc.state.shouldOpen(16, began); got != tc.opens {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestCallsThatHangOpenTheBreakerOnce(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	answersOthers := hangingCalls{lastAnswer: began.Add(time.Second)}
	hang := func(h hangingCalls, calls int) hangingCalls {
		for range calls {
			h, _ = h.add()
		}
		return h
	}
	opened := hang(answersOthers, 257)
	if !opened.shouldOpen(16, began) {
		t.Fatal("257 that hang do not open it")
	}
	later := opened.breakerChanged().breakerChanged() // opened, and closed
	for calls := range 257 {
		if hang(later, calls).shouldOpen(16, began) {
			t.Fatalf("%d calls beside those that it was opened for open it again", calls)
		}
	}
	if !hang(later, 257).shouldOpen(16, began) {
		t.Error("another 257 that hang do not open it")
	}
	quiet := later
	quiet.lastAnswer = time.Time{}
	if hang(quiet, 16).shouldOpen(16, began) || !hang(quiet, 17).shouldOpen(16, began) {
		t.Error("where nobody is answered, the calls that it was opened for count again")
	}
}

func TestACallThatHungIsForgottenWhenItAnswers(t *testing.T) {
	t.Parallel()
	h, first := hangingCalls{}.add()
	h = h.breakerChanged()
	h, second := h.add()
	h, third := h.add()
	if h = h.remove(first).remove(second); h.beforeChange != 0 || h.sinceChange != 1 || h.empty() {
		t.Errorf("%+v", h)
	}
	if h = h.breakerChanged().remove(third); !h.empty() || h.beforeChange != 0 || h.sinceChange != 0 {
		t.Errorf("%+v", h)
	}
}
