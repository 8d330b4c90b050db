package receipts

import "time"

// What black-box tests need of this package that its users do not.

var (
	ErrNoTerms      = errNoTerms
	ErrNotCanonical = errNotCanonical
)

// EncodePayload returns a payload as a body has it.
func EncodePayload(p *Payload) []byte {
	c := canon{buf: []byte{'{'}}
	c.payload(p)
	c.close()
	return c.buf
}

// EncodeTime returns the beginning of an object with a time as a body has it.
func EncodeTime(name string, at time.Time) []byte {
	c := canon{buf: []byte{'{'}}
	c.time(name, at)
	return c.buf
}
