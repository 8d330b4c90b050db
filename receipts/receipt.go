package receipts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Draft is a receipt about to be written: what its author says. Chain adds the case, the tenant, the sequence and
// the link.
type Draft struct {
	Run     RunID     // zero when the fact is about the case and no single run
	Subtype Subtype   // one of KnownSubtypes
	Actor   string    // who did it; never empty, never a secret
	At      time.Time // when; stored in UTC, truncated to microseconds
	Payload Payload   // the particulars; its zero value is an empty object
}

// Entry is all that a body says: a draft with the case and tenant it was written for.
type Entry struct {
	Case   CaseID
	Tenant string
	Draft
}

// Receipt is one stored fact. Body is the truth; Case, Tenant, Run, Source, Subtype, Actor and At repeat it
// for queries, and a Verifier checks that they agree. Seq counts from 1 within the case, without gaps.
type Receipt struct {
	Case    CaseID
	Seq     int64
	Tenant  string
	Run     RunID
	Source  Source
	Subtype Subtype
	Actor   string
	At      time.Time
	Body    []byte
	Link    [32]byte

	parsed *parsedBody // nil until ParseEach
}

// parsedBody is what a body says. A receipt whose Body is another slice is parsed again.
type parsedBody struct {
	body  []byte
	entry Entry
}

// ParseEach parses the body of each receipt, so that Entry, Payload, Fold and a Verifier need not. It ignores
// a body that Parse refuses: they refuse it too. Nobody may write to the bodies afterwards.
func ParseEach(rs []Receipt) {
	all := make([]parsedBody, len(rs))
	for i := range rs {
		if e, err := Parse(rs[i].Body); err == nil {
			all[i] = parsedBody{rs[i].Body, e}
			rs[i].parsed = &all[i]
		}
	}
}

// Equal reports whether two receipts have the same columns, body and link.
func (r Receipt) Equal(other Receipt) bool {
	return r.Case == other.Case && r.Seq == other.Seq && r.Tenant == other.Tenant && r.Run == other.Run && r.Source == other.Source && r.Subtype == other.Subtype &&
		r.Actor == other.Actor && r.At.Equal(other.At) && bytes.Equal(r.Body, other.Body) && r.Link == other.Link
}

// Entry returns all that the body says. It fails as Parse does.
func (r Receipt) Entry() (Entry, error) {
	if p := r.parsed; p != nil && len(p.body) == len(r.Body) && &p.body[0] == &r.Body[0] {
		return p.entry, nil
	}
	return Parse(r.Body)
}

// ID returns "<case>.<sequence>", unique among all receipts.
func (r Receipt) ID() string {
	b := make([]byte, 0, uuidLen+20)
	b = appendUUID(b, r.Case)
	b = append(b, '.')
	return string(strconv.AppendInt(b, r.Seq, 10))
}

// Known reads the particulars out of a body that a newer program may have written, and ignores members
// that this one does not know. Code that verifies or folds uses Payload.
func (r Receipt) Known() (Payload, error) {
	var body struct {
		Payload Payload `json:"payload"`
	}
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return Payload{}, fmt.Errorf("receipts: body is not readable: %w", err)
	}
	return body.Payload, nil
}

// Payload reads the particulars out of the body. It fails as Parse does.
func (r Receipt) Payload() (Payload, error) {
	e, err := r.Entry()
	return e.Payload, err
}
