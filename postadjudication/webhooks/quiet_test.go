package webhooks_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// slowly makes the first tries follow one another within milliseconds, and the others never sooner than
// any other wait ends.
func slowly(failures int) time.Duration {
	if failures > 3 {
		return 2 * time.Second
	}
	return time.Millisecond
}

// An event that its receiver never accepts delays no other case, also if nothing else happens for so
// long that its tries are far apart. A person's resume tries it at once, though others were
// accepted since.
func TestARefusedEventDelaysNoOtherCase(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *postadjudication.Config) { c.Webhooks.Delay = slowly })
	r := newReceiver(t, nil)
	w := f.create(r)
	f.StartWorkers()
	f.MustSubmit(rig.Release(0))
	f.WaitSettled(1)
	f.waitAll(r)
	known := r.ids()
	var refused string
	r.set(func(e event.Event) int {
		if refused == "" && !slices.Contains(known, e.ID()) {
			refused = e.ID()
		}
		if e.ID() == refused {
			return http.StatusUnprocessableEntity
		}
		return http.StatusNoContent
	})
	s := f.MustSubmit(rig.Release(1))
	f.WaitSettled(2)
	f.Wait("the tries of the refused event are far apart", func() bool { return f.get(w).Failures >= 6 })
	for n := range 2 {
		other := f.MustSubmit(rig.Release(2 + n))
		f.Wait("another case arrives", func() bool {
			return slices.ContainsFunc(r.events(), func(e event.Event) bool { return e.Extensions()["caseid"] == other.Case.String() })
		})
	}
	f.WaitSettled(4)
	f.Wait("only the refused case waits", func() bool {
		got := f.get(w)
		return got.Failures == 0 && got.Waiting > 0 && !got.FailingSince.IsZero() && len(r.ids())+got.Waiting == len(f.log())
	})
	if slices.ContainsFunc(r.events(), func(e event.Event) bool { return e.Extensions()["caseid"] == s.Case.String() }) {
		t.Error("an event of the refused case was accepted")
	}
	r.set(nil)
	got, err := f.Resume(t.Context(), w.ID, "the receiver is mended")
	if err != nil || got.Reason != "the receiver is mended" || !got.FailingSince.IsZero() || got.State != webhooks.Active {
		t.Errorf("%+v, %v", got, err)
	}
	f.waitAll(r)
}
