package postadjudication_test

import (
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig/taskinspector"
)

func TestSubmitDoesNotWaitForRedisAndCloseDoes(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.OneQueue)
	d := taskinspector.New(r)
	resume := d.Pause(t)
	const n = 3
	for i := range n {
		if s := r.MustSubmit(rig.Release(i)); s.Reply != postadjudication.Created {
			t.Errorf("%+v", s)
		}
	}
	if sent := d.PendingNotifications(t); sent != 0 {
		t.Errorf("%d notifications were sent to a Redis that is paused", sent)
	}
	resume()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if sent := d.PendingNotifications(t); sent != n {
		t.Errorf("%d notifications were sent when Close returned, want %d", sent, n)
	}
	next := rig.Join(t, r.DatabaseURL, r.Redis, r.Escrow, rig.OneQueue).StartWorkers()
	next.WaitNoneLive()
	next.MustAudit()
}
