package postadjudication_test

import (
	"context"
	"sync"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// A list omits no letter that somebody holds and releases meanwhile: it matches at every moment, though it is
// counted among others each time.
func TestAListOmitsNoLetterThatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(0, rig.Refuses)
	ctx, stop := context.WithCancel(context.Background())
	letters := r.As("acme", "user:ada").DeadLetters
	var changing sync.WaitGroup
	changing.Go(func() {
		for ctx.Err() == nil {
			if _, err := letters.Hold(context.Background(), letter.Run, "a court asks"); err != nil {
				t.Error(err)
			}
			if _, err := letters.Release(context.Background(), letter.Run, "it does not"); err != nil {
				t.Error(err)
			}
		}
	})
	defer changing.Wait()
	defer stop()
	var listing sync.WaitGroup
	for range 4 { // each brings the index up to date
		listing.Go(func() {
			for n := range 150 {
				page, err := letters.List(context.Background(), deadletter.Query{Filter: deadletter.Filter{Status: background.LetterOpen}, Limit: 10})
				if err != nil || len(page.Letters) != 1 {
					t.Errorf("list %d has %d letters: %v", n, len(page.Letters), err)
					return
				}
			}
		})
	}
	listing.Wait()
}
