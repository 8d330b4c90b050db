package postadjudication_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// Two requests whose keys are both expired each delete the other's row while they insert
// their own: neither is refused, and they do not deadlock.
func TestRequestsWithOutdatedKeysDoNotStandInEachOthersWay(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	old := r.NewPruner().At(-2 * postadjudication.RequestRetention)
	const keys = 8
	for round := range 20 {
		for n := range keys {
			if _, q, err := old.BeginRequest(ctx, "acme", fmt.Sprint("key-", n), [32]byte{byte(round)}); err != nil || q == nil {
				t.Fatalf("%v, %v", q, err)
			}
		}
		var all sync.WaitGroup
		for n := range keys {
			all.Go(func() {
				_, q, err := r.BeginRequest(ctx, "acme", fmt.Sprint("key-", n), [32]byte{byte(round), 1})
				if err != nil || q == nil {
					t.Errorf("round %d, key %d: %v", round, n, err)
					return
				}
				if err := q.Drop(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
