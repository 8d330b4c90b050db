package main

import (
	"syscall"
	"testing"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/internal/failpoint"
)

// A process that sends to webhooks and freezes before, in or after a request is replaced by another.
// When it wakes it overwrites no position, and every event has arrived.
func TestAFrozenSenderIsReplacedAndOverwritesNoPosition(t *testing.T) {
	for _, point := range []string{
		failpoint.Point(failpoint.CallBefore, failpoint.Delivery),
		failpoint.Point(failpoint.CallAfter, failpoint.Delivery),
		failpoint.Point(failpoint.JournalBefore, failpoint.WebhookPosition),
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.receiver = newReceiver(t)
			h := s.worker("", func(c *worker.Settings) { c.CommandsOnly = true })
			createWebhook(s, h)
			pauseWebhook(s, h) // this is an event, and nothing sends it
			s.terminate(h)
			sleeper := s.worker("stop=" + point)
			resumeWebhook(s, sleeper)
			s.frozen(sleeper)
			other := s.worker("")
			s.submit(other, adjudication(1, "retryable,ok", ""))
			s.awaitNoneLive()
			s.awaitEvents()
			s.until("the position is that of the newest event", sentEverything)
			if err := sleeper.process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			s.terminate(sleeper) // it tries to write what it has reached
			s.until("the position is still that of the newest event", sentEverything)
			s.submit(other, adjudication(2, "ok", ""))
			s.awaitNoneLive()
			s.awaitEvents()
			s.terminate(other)
			s.checkConsistent()
		})
	}
}

// Every event up to the last receipt was delivered.
const sentEverything = `SELECT bool_and(p.pending = '{}' AND p.read_to = 8 * (SELECT max(tenant_last) FROM recourse.event_log WHERE tenant = 'chaos') + 7) FROM recourse.webhook_positions p`
