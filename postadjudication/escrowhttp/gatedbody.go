package escrowhttp

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// errCallEnded stops a transport that reads the body after the exchange has ended.
var errCallEnded = errors.New("escrowhttp: the call has ended")

// gatedBody is a request body that returns its last byte only if fresh allows it: after the
// dial, TLS and anything else that took time. Without that byte nobody has the request. The
// transport's goroutines read it; the caller's goroutine calls end.
//
// It can't be rewound, so that net/http can't send it twice.
type gatedBody struct {
	fresh func() error // nil: not checked

	mu       sync.Mutex
	unread   *bytes.Reader
	released bool  // the last byte, or the end of an empty body, may be read
	refused  error // error of fresh
	ended    bool  // no more reads
}

func newGatedBody(request []byte, fresh func() error) *gatedBody {
	return &gatedBody{unread: bytes.NewReader(request), fresh: fresh}
}

// Read returns all but the last byte, then calls fresh, then returns the last byte.
func (b *gatedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch left := b.unread.Len(); {
	case b.refused != nil:
		return 0, b.refused
	case b.ended && !b.released:
		return 0, errCallEnded
	case len(p) == 0:
		return 0, nil
	case left > 1:
		return b.unread.Read(p[:min(len(p), left-1)])
	case !b.released:
		if err := b.checkFresh(); err != nil {
			return 0, err
		}
	}
	return b.unread.Read(p)
}

// checkFresh returns nil if the last byte may be read. The call may end meanwhile.
func (b *gatedBody) checkFresh() error {
	var err error
	if b.fresh != nil {
		b.mu.Unlock()
		err = b.fresh()
		b.mu.Lock()
	}
	switch {
	case b.ended:
		return errCallEnded
	case err != nil:
		b.refused = err
		return err
	}
	b.released = true
	return nil
}

// Close does nothing: the transport calls it when it stops reading.
func (b *gatedBody) Close() error { return nil }

// end stops further reads, and returns the error of fresh if that held back the last byte.
func (b *gatedBody) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	return b.refused
}

var _ io.ReadCloser = (*gatedBody)(nil)
