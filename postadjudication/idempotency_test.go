package postadjudication_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

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

// A request that takes over from one whose process died knows when that began; no other one does.
func TestARequestKnowsWhenItBeganFirst(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	ctx := context.Background()
	for n := range 50 {
		if _, q, err := r.BeginRequest(ctx, "acme", fmt.Sprint("new-", n), [32]byte{1}); err != nil || !q.FirstBegan().IsZero() {
			t.Fatalf("the first one began first at %v, %v", q.FirstBegan(), err)
		}
	}
	dead := r.NewPruner().At(-time.Hour)
	if _, _, err := dead.BeginRequest(ctx, "acme", "key", [32]byte{1}); err != nil {
		t.Fatal(err)
	}
	_, q, err := r.BeginRequest(ctx, "acme", "key", [32]byte{1})
	if err != nil || time.Since(q.FirstBegan()) < 50*time.Minute {
		t.Errorf("%v, %v", q.FirstBegan(), err)
	}
}
