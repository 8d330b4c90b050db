package webhookdelivery

import (
	"context"
	"testing"
	"time"
)

func TestWebhooksWaitWhileTheProcessIsBusy(t *testing.T) {
	t.Parallel()
	var written uint64
	p := newPacer(func() uint64 { return written })
	at := p.at
	if first, second := p.send(at), p.send(at); first != 0 || second != 0 || p.readPause(time.Millisecond) != readCost*time.Millisecond {
		t.Error("webhooks wait though nothing is done")
	}
	written, at = written+busyRate+1, at.Add(time.Second)
	p.measure(at)
	if p.send(at) != 0 || p.send(at) != requestPauseBusy || p.send(at.Add(requestPauseBusy)) != 0 || p.send(at.Add(requestPauseBusy)) != requestPauseBusy {
		t.Error("requests are not apart")
	}
	if p.readPause(time.Millisecond) != readCostBusy*time.Millisecond || p.readPause(time.Minute) != readPauseMax {
		t.Error("reads are not apart")
	}
	written, at = written+busyRate, at.Add(time.Second)
	p.measure(at)
	if p.send(at) != 0 {
		t.Error("webhooks wait though the process is not busy any more")
	}
	p.measure(at) // no time has passed
	if p.busy.Load() {
		t.Error("busy without time")
	}
}

// One caller reads at a time, and whoever waits leaves when its context is done.
func TestOneReadAtATime(t *testing.T) {
	t.Parallel()
	p := newPacer(idle)
	inside, leave := make(chan struct{}), make(chan struct{})
	go func() {
		if err := p.read(context.Background(), func() bool { close(inside); <-leave; return false }); err != nil {
			t.Error(err)
		}
	}()
	<-inside
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.read(ctx, func() bool { t.Error("two read at once"); return false }); err == nil {
		t.Error("a reader whose context is done waits")
	}
	close(leave)
	if err := p.read(context.Background(), func() bool { return false }); err != nil {
		t.Error(err)
	}
}
