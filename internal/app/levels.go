package app

import (
	"context"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
)

const (
	// levelsTTL is for how long measured levels are shown, at least.
	levelsTTL = 5 * time.Second
	// levelsPauseFactor bounds the part of the time that measuring may take: after a
	// measurement of a second the next waits for twenty.
	levelsPauseFactor = 20
	levelsTimeout     = 5 * time.Second
)

// levelCache remembers a measurement, so that scraping costs the database little
// however often it is done.
type levelCache struct {
	measure func(context.Context) (postadjudication.Levels, error)
	now     func() time.Time

	mu    sync.Mutex
	last  postadjudication.Levels
	err   error
	until time.Time
}

// get answers the last measurement, or a new one when that is over. An error is
// remembered like a measurement.
func (l *levelCache) get(ctx context.Context) (postadjudication.Levels, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := l.now()
	if began.Before(l.until) {
		return l.last, l.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), levelsTimeout) // others wait for it too
	defer cancel()
	l.last, l.err = l.measure(ctx)
	ended := l.now()
	l.until = ended.Add(max(levelsTTL, levelsPauseFactor*ended.Sub(began)))
	return l.last, l.err
}
