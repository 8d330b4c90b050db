package background_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recourse-dev/recourse/background"
)

// Loops that started together would each open a connection to the store.
func TestLoopsStartOneAfterAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		begin := time.Now()
		var group sync.WaitGroup
		var mu sync.Mutex
		var starts []time.Duration
		loop := func(context.Context) {
			mu.Lock()
			defer mu.Unlock()
			if starts = append(starts, time.Since(begin)); len(starts) == 3 {
				end() // before the fourth
			}
		}
		const every = background.LoopStartEvery
		background.StartLoops(ctx, &group, loop, loop, loop, loop)
		group.Wait()
		if want := []time.Duration{every, 2 * every, 3 * every}; !slices.Equal(starts, want) {
			t.Errorf("loops started after %v, want %v", starts, want)
		}
	})
}
