package ojs

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// However many ask how the server is, the store is read once in a while, also where it fails.
func TestStrangersDoNotMakeTheServerReadItsStore(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errors.New("down")} {
		var c storeCheck
		checks := 0
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, err := c.run(func(context.Context) error { checks++; return want }); !errors.Is(err, want) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if checks == 0 || checks > 10 { // one, unless the machine stood still
			t.Errorf("%d checks", checks)
		}
	}
}
