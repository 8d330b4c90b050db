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
			starts = append(starts, time.Since(begin))
		}
		const every = background.LoopStartEvery
		background.StartLoops(ctx, &group, loop, loop, loop, loop)
		time.Sleep(3*every + every/2) // of the bubble's clock: the fourth has not started
		end()
		group.Wait()
		if want := []time.Duration{every, 2 * every, 3 * every}; !slices.Equal(starts, want) {
			t.Errorf("loops started after %v, want %v", starts, want)
		}
	})
}
