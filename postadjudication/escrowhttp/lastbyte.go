package escrowhttp

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// errEnded stops a transport that reads on after the exchange has ended.
var errEnded = errors.New("escrowhttp: the call has ended")

// lastByte is the body of a request whose last byte leaves only when fresh says so:
// behind the dial, TLS and whatever else took time. Without that byte nobody has the
// request. It is read by the transport's goroutines, and asked about by ours.
//
// It has no way back to its beginning, so that net/http can't send it twice.
type lastByte struct {
	fresh func() error // nil: nobody is asked

	mu      sync.Mutex
	rest    *bytes.Reader
	let     bool  // the last byte, or the end of an empty body, was let go
	refused error // what fresh said instead
	ended   bool  // nothing leaves any more
}

func newLastByte(request []byte, fresh func() error) *lastByte {
	return &lastByte{rest: bytes.NewReader(request), fresh: fresh}
}

// Read gives all but the last byte, then asks, then gives the last.
func (b *lastByte) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch left := b.rest.Len(); {
	case b.refused != nil:
		return 0, b.refused
	case b.ended && !b.let:
		return 0, errEnded
	case len(p) == 0:
		return 0, nil
	case left > 1:
		return b.rest.Read(p[:min(len(p), left-1)])
	case !b.let:
		if err := b.ask(); err != nil {
			return 0, err
		}
	}
	return b.rest.Read(p)
}

// ask returns nil when the last byte may leave. The call may end meanwhile.
func (b *lastByte) ask() error {
	var err error
	if b.fresh != nil {
		b.mu.Unlock()
		err = b.fresh()
		b.mu.Lock()
	}
	switch {
	case b.ended:
		return errEnded
	case err != nil:
		b.refused = err
		return err
	}
	b.let = true
	return nil
}

// Close is called by the transport when it reads no more.
func (b *lastByte) Close() error { return nil }

// end lets nothing more leave, and reports what kept the last byte from leaving when
// fresh did.
func (b *lastByte) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	return b.refused
}

var _ io.ReadCloser = (*lastByte)(nil)
