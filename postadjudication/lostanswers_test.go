package postadjudication_test

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
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
			case <-time.After(time.Minute):
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

// The alarm of an excess is raised though the commit of the payment was answered by nobody.
func TestAnExcessIsReportedThoughItsCommitWasNotAnswered(t *testing.T) {
	t.Parallel()
	p, through := testkit.NewLossyPostgres(t, testkit.Migrated(t))
	_, redis := testkit.Redis(t)
	core, logs := observer.New(zap.ErrorLevel)
	r := rig.Join(t, through, redis, rig.NewEscrow(), func(c *postadjudication.Config) { c.Logger = zap.New(core) }).StartWorkers()
	r.AllowOverpaid = true
	r.Escrow.Answer(func(c escrow.Call) escrow.Answer {
		return escrow.Answer{Class: escrow.Executed, Moved: c.Amount.Minor + 1, Reference: "paid-beyond-what-was-asked"}
	})
	p.LoseAnswerTo("paid-beyond-what-was-asked", true)
	r.MustSubmit(rig.Release(1))
	r.WaitNoneLive()
	alarms := func() int { return logs.FilterMessage("more was paid than was adjudicated").Len() }
	r.Wait("the alarm is raised", func() bool { return r.Health().Breaches().Excesses == 1 && alarms() > 0 })
	if p.Lost() != 1 || alarms() != 1 {
		t.Errorf("%d answers were lost: %v", p.Lost(), logs.All())
	}
}
