package api

import (
	"fmt"
	"testing"
)

func TestFailuresAreCountedByWhoMakesThem(t *testing.T) {
	t.Parallel()
	f, err := newFailures(0.001, 5)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if wait := f.one("a"); wait != 0 {
			t.Fatalf("waits %d", wait)
		}
	}
	for range 3 { // to be refused costs nothing more
		if wait := f.one("a"); wait < 900 || wait > 1000 {
			t.Errorf("waits %d", wait)
		}
	}
	if wait := f.one("b"); wait != 0 {
		t.Errorf("another waits %d", wait)
	}
	for i := range 2 * counted {
		f.one(fmt.Sprint(i))
	}
	if f.by.Len() > counted {
		t.Errorf("%d are kept in mind", f.by.Len())
	}
}
