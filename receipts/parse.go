package receipts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrNotCanonical says that a body means something but is not written the one way AppendBody writes it.
var ErrNotCanonical = errors.New("receipts: body is not in canonical form")

// Parse reads a body. It accepts exactly what AppendBody writes: an unknown, repeated, misspelt or
// misplaced member, another spelling of a number, time or string, or anything after the end is an error.
func Parse(body []byte) (Entry, error) {
	var w struct {
		Actor   string    `json:"actor"`
		At      time.Time `json:"at"`
		Case    CaseID    `json:"case"`
		Payload Payload   `json:"payload"`
		Run     string    `json:"run"`
		Source  Source    `json:"source"`
		Subtype Subtype   `json:"subtype"`
		Tenant  string    `json:"tenant"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return Entry{}, fmt.Errorf("receipts: body is not readable: %w", err)
	}
	e := Entry{Case: w.Case, Tenant: w.Tenant}
	e.Draft = Draft{Subtype: w.Subtype, Actor: w.Actor, At: w.At, Payload: w.Payload}
	if w.Run != "" {
		run, err := ParseRunID(w.Run)
		if err != nil {
			return Entry{}, err
		}
		e.Run = run
	}
	// The decoder is lenient about order, case, repetition and escapes. Writing again is not.
	again, err := appendBody(make([]byte, 0, len(body)), e.Case, e.Tenant, &e.Draft)
	if err != nil {
		return Entry{}, err
	}
	if !bytes.Equal(again, body) {
		return Entry{}, ErrNotCanonical
	}
	return e, nil
}
