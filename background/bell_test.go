package background

import "testing"

func FuzzBellOf(f *testing.F) {
	for _, s := range []string{"", ".", "x.3", "x.-1", "x.03", "x.3.4", "3", "x.99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if bell := bellOf(id); bell < -1 {
			t.Errorf("%q rings bell %d", id, bell)
		}
	})
}

func TestBellOfReadsWhatTaskIDWrites(t *testing.T) {
	t.Parallel()
	for _, bell := range []int{0, 1, 42, 1 << 40} {
		if got := bellOf(taskID(Run{Bell: bell})); got != bell {
			t.Errorf("bell %d reads as %d", bell, got)
		}
	}
	for _, foreign := range []string{"", "x", "x.", "x.y", "x.-1"} {
		if got := bellOf(foreign); got != -1 {
			t.Errorf("%q reads as bell %d", foreign, got)
		}
	}
}
