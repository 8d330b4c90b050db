//go:build unix

package child

import (
	"io"
	"sync"
)

// tailSize is how much of a server's output is kept to explain its end.
const tailSize = 4 << 10

// tail keeps the end of what is written and passes it on.
type tail struct {
	mu   sync.Mutex
	buf  []byte
	next io.Writer
}

// Write never fails: a log that refuses must not stop a server.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	if t.next != nil {
		if _, err := t.next.Write(p); err != nil {
			t.next = nil
		}
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
