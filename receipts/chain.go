package receipts

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// Head is the end of the chain of a case: the sequence of its last receipt and that receipt's link.
type Head struct {
	Seq  int64
	Link [32]byte
}

// genesisDomain names the format. A change to bodies or links that old verifiers would misread changes it.
const genesisDomain = "recourse/1"

// Genesis returns the head of a case without receipts: sequence 0 and SHA-256("recourse/1" ‖ case).
func Genesis(c CaseID) Head {
	var in [len(genesisDomain) + len(c)]byte
	copy(in[:], genesisDomain)
	copy(in[len(genesisDomain):], c[:])
	return Head{Link: sha256.Sum256(in[:])}
}

// Next returns the head after a receipt with this body:
// SHA-256(link before ‖ its sequence as 8 bytes big-endian ‖ SHA-256(body)).
func (h Head) Next(body []byte) Head {
	return h.NextHash(sha256.Sum256(body))
}

// NextHash is Next for the SHA-256 of a body.
func (h Head) NextHash(body [32]byte) Head {
	var in [32 + 8 + 32]byte
	copy(in[:], h.Link[:])
	binary.BigEndian.PutUint64(in[32:], uint64(h.Seq+1))
	copy(in[40:], body[:])
	return Head{Seq: h.Seq + 1, Link: sha256.Sum256(in[:])}
}

// bodyBuffers are where bodies are written before their lengths are known.
var bodyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Chain writes the bodies of drafts, chains them behind head in the order given, and returns the receipts to
// store with the head after them. Chain itself stores nothing. The caller stores receipts and head in one
// commit, and only if the given head is still the case's newest: by a lock, or by a guard of the statement.
// The error wraps a *FieldError and names the draft; no receipts are returned with it, and head is unchanged.
func Chain(c CaseID, tenant string, head Head, drafts ...Draft) ([]Receipt, Head, error) {
	rs := make([]Receipt, 0, len(drafts))
	next := head
	scratch := bodyBuffers.Get().(*[]byte)
	defer bodyBuffers.Put(scratch)
	for i := range drafts {
		d := &drafts[i]
		written, err := d.AppendBody((*scratch)[:0], c, tenant)
		if err != nil {
			return nil, head, fmt.Errorf("receipts: draft %d: %w", i, err)
		}
		*scratch = written
		body := bytes.Clone(written)
		next = next.Next(body)
		rs = append(rs, Receipt{
			Case: c, Seq: next.Seq, Tenant: tenant, Run: d.Run,
			Source: d.Subtype.Source(), Subtype: d.Subtype,
			Actor: d.Actor, At: d.At.UTC().Truncate(time.Microsecond),
			Body: body, Link: next.Link,
		})
	}
	return rs, next, nil
}
