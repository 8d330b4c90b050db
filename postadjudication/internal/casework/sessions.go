package casework

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// Sessions reads the sessions of processes that run.
type Sessions struct {
	Journal *journal.Journal
	Engine  Engine
}

// SessionTimeout is how long a process without a heartbeat counts as running.
const SessionTimeout = 30 * time.Second

// Running returns the sessions of running processes.
func (p *Sessions) Running(ctx context.Context) ([]background.Session, error) {
	if err := p.Engine.MeasureClock(ctx); err != nil { // with a clock that is off, all sessions would look old
		return nil, err
	}
	sessions, err := p.Journal.Sessions.Sessions(ctx)
	since := p.Engine.Now().Add(-SessionTimeout)
	return beating(sessions, since), err
}

// beating returns the sessions that had a heartbeat since a time.
func beating(all []background.Session, since time.Time) []background.Session {
	return slices.DeleteFunc(all, func(one background.Session) bool { return one.Lost || one.BeatAt.Before(since) })
}

// ServedBy reports whether a running process has a family.
func ServedBy(family string, sessions []background.Session) bool {
	return slices.ContainsFunc(sessions, func(s background.Session) bool {
		return slices.ContainsFunc(s.Queues, func(q string) bool { return strings.HasPrefix(q, family+":") })
	})
}

// ServedFamilies caches which families running processes have, so that a list of letters can be
// judged by it.
type ServedFamilies struct {
	Local   map[string]bool // of this process, running or not
	Running func(context.Context) ([]background.Session, error)

	mu    sync.Mutex
	seen  []background.Session
	err   error
	until time.Time // on this machine's clock
}

// servedFamiliesTTL is how long an answer is cached, and the timeout of reading it.
const servedFamiliesTTL = time.Second

// served reports whether a process may execute runs of a family: this process, running or not, or
// a running one. The error is that of reading the sessions; all callers within a second share it.
func (f *ServedFamilies) served(ctx context.Context, family string) (bool, error) {
	if f.Local[family] {
		return true, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().After(f.until) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), servedFamiliesTTL)
		defer cancel()
		f.seen, f.err = f.Running(ctx)
		f.until = time.Now().Add(servedFamiliesTTL) // after a read that may have taken as long
	}
	return ServedBy(family, f.seen), f.err
}
