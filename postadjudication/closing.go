package postadjudication

import (
	"errors"
	"sync"
)

// ErrClosed is returned by a submission, and by Run, that began after Close. Nothing was submitted.
var ErrClosed = errors.New("postadjudication: the service is closed")

// calls counts the calls in progress. After close, none begins.
type calls struct {
	mu     sync.RWMutex // read-locked by each call in progress, locked for good by close
	closed sync.Once
}

// begin reports whether a call may begin. The caller of a call that begins calls end.
func (c *calls) begin() bool { return c.mu.TryRLock() }

func (c *calls) end() { c.mu.RUnlock() }

// close lets no call begin, and waits for those in progress.
func (c *calls) close() { c.closed.Do(c.mu.Lock) }
