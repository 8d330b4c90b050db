package escrowhttp

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// errCallEnded stops a transport that reads on after the exchange has ended.
var errCallEnded = errors.New("escrowhttp: the call has ended")

// gatedBody is the body of a request whose last byte leaves only when fresh says so:
// behind the dial, TLS and whatever else took time. Without that byte nobody has the
// request. It is read by the transport's goroutines, and asked about by ours.
//
// It has no way back to its beginning, so that net/http can't send it twice.
type gatedBody struct {
	fresh func() error // nil: nobody is asked

	mu       sync.Mutex
	unread   *bytes.Reader
	released bool  // the last byte, or the end of an empty body, was let go
	refused  error // what fresh said instead
	ended    bool  // nothing leaves any more
}

func newGatedBody(request []byte, fresh func() error) *gatedBody {
	return &gatedBody{unread: bytes.NewReader(request), fresh: fresh}
}

// Read gives all but the last byte, then asks, then gives the last.
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

// checkFresh returns nil when the last byte may leave. The call may end meanwhile.
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

// Close is called by the transport when it reads no more.
func (b *gatedBody) Close() error { return nil }

// end lets nothing more leave, and reports what kept the last byte from leaving when
// fresh did.
func (b *gatedBody) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	return b.refused
}

var _ io.ReadCloser = (*gatedBody)(nil)
