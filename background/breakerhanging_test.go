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
		state hanging
		opens bool
	}{
		{"as many as may", hanging{since: 16}, false},
		{"more than may, and nobody was ever answered", hanging{since: 17}, true},
		{"more than may, and nobody was answered since the last of them began", hanging{since: 17, answered: began.Add(-time.Nanosecond)}, true},
		{"more than may, and somebody was answered meanwhile", hanging{since: 17, answered: began}, false},
		{"as many as may in any case", hanging{since: 256, answered: began.Add(time.Second)}, false},
		{"more than may in any case", hanging{since: 257, answered: began.Add(time.Second)}, true},
	} {
		if got := tc.state.opens(16, began); got != tc.opens {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestCallsThatHangOpenTheBreakerOnce(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	answersOthers := hanging{answered: began.Add(time.Second)}
	hang := func(h hanging, calls int) hanging {
		for range calls {
			h, _ = h.hang()
		}
		return h
	}
	opened := hang(answersOthers, 257)
	if !opened.opens(16, began) {
		t.Fatal("257 that hang do not open it")
	}
	later := opened.moved().moved() // opened, and closed
	for calls := range 257 {
		if hang(later, calls).opens(16, began) {
			t.Fatalf("%d calls beside those that it was opened for open it again", calls)
		}
	}
	if !hang(later, 257).opens(16, began) {
		t.Error("another 257 that hang do not open it")
	}
	quiet := later
	quiet.answered = time.Time{}
	if hang(quiet, 16).opens(16, began) || !hang(quiet, 17).opens(16, began) {
		t.Error("where nobody is answered, the calls that it was opened for count again")
	}
}

func TestACallThatHungIsForgottenWhenItAnswers(t *testing.T) {
	t.Parallel()
	h, first := hanging{}.hang()
	h = h.moved()
	h, second := h.hang()
	h, third := h.hang()
	if h = h.answer(first).answer(second); h.before != 0 || h.since != 1 || h.none() {
		t.Errorf("%+v", h)
	}
	if h = h.moved().answer(third); !h.none() || h.before != 0 || h.since != 0 {
		t.Errorf("%+v", h)
	}
}
