package postadjudication_test

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
)

// A death whose commit was answered by nobody is reported once, however the connection broke.
func TestADeathIsReportedThoughItsCommitWasNotAnswered(t *testing.T) {
	t.Parallel()
	for how, resets := range map[string]bool{"closed": false, "reset": true} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p, through := testkit.NewLossyPostgres(t, testkit.Migrated(t))
			_, redis := testkit.Redis(t)
			opened := make(chan background.RunID, 16)
			r := rig.Join(t, through, redis, rig.NewEscrow(), func(c *postadjudication.Config) {
				c.OnLetterOpened = func(letter background.Run) { opened <- letter.ID }
			}).StartWorkers()
			p.LoseAnswerTo("dead-lettered", resets)
			letters := r.DeadLetters(0, 1, rig.Refuses)
			if n := p.Lost(); n != 1 {
				t.Fatalf("%d answers were lost", n)
			}
			select {
			case letter := <-opened:
				if letter != letters[0].Run {
					t.Errorf("the dead letter %s was reported", letter)
				}
			case <-time.After(5 * time.Second):
				t.Error("the death was not reported")
			}
			r.StopWorkers()
			if n := len(opened); n > 0 {
				t.Errorf("%d more dead letters were reported", n)
			}
			r.MustAudit()
		})
	}
}
