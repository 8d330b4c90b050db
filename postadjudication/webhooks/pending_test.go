package webhooks_test

import (
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// What a process left pending is sent by the next one, with what has happened since, and nothing else.
func TestWhatIsPendingIsSentAfterARestart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := newReceiver(t, nil)
	w := f.create(r)
	keyless := f.other(func(c *postadjudication.Config) { c.Webhooks.Keys = webhooks.Keys{} })
	keyless.StartWorkers()
	for n := range 3 {
		keyless.MustSubmit(rig.Release(n))
	}
	keyless.WaitSettled(3)
	before := f.log()
	first, third, last := before[0], before[2], before[len(before)-1].Position
	if _, err := f.DB.Exec(`UPDATE recourse.webhook_positions SET read_to = $1, pending = ARRAY[$2, $3]::bigint[] WHERE webhook_id = $4`,
		int64(last), int64(first.Position), int64(third.Position), w.ID); err != nil {
		t.Fatal(err)
	}
	if got := f.get(w); got.Waiting != 2 || got.Position != first.Position-1 {
		t.Errorf("%+v", got)
	}
	keyless.MustSubmit(rig.Release(3))
	keyless.WaitSettled(4)
	after := f.log()
	f.StartWorkers()
	f.Wait("it has nothing more to send", func() bool {
		got := f.get(w)
		return got.Waiting == 0 && got.Position >= after[len(after)-1].Position
	})
	got, want := r.ids(), []string{first.ID, third.ID}
	for _, e := range after[len(before):] {
		want = append(want, e.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%v arrived, in place of %v", got, want)
	}
}
