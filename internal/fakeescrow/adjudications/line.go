package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

type money struct {
	Minor    int64  `json:"minor"`
	Currency string `json:"currency"`
}

// adjudication is one line of the file.
type adjudication struct {
	TransactionReceiptID string `json:"transaction_receipt_id"`
	SubmissionReceiptID  string `json:"submission_receipt_id"`
	AdjudicationID       string `json:"adjudication_id"`
	Generation           int    `json:"generation,omitempty"` // absent means 1
	Tenant               string `json:"tenant"`
	EscrowReference      string `json:"escrow_reference"`
	Outcome              string `json:"outcome"`
	Amount               money  `json:"amount"`
	Held                 money  `json:"held"`
	Simulate             any    `json:"simulate"`
}

// line is an adjudication at its place, which also gives its ids their time.
type line struct {
	adjudication
	at   float64
	kind string
	text []byte // as it is written
}

// build returns every line, in the order of the file.
func build() ([]line, error) {
	ordinary := ordinaryLines()
	lines := slices.Concat(ordinary, conflictLines(ordinary))
	for i := range lines {
		text, err := json.Marshal(lines[i].adjudication)
		if err != nil {
			return nil, err
		}
		lines[i].text = text
	}
	damaged, err := malformedLines(ordinary)
	if err != nil {
		return nil, err
	}
	lines = append(lines, damaged...)
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	return lines, nil
}

func file(lines []line) []byte {
	var b bytes.Buffer
	for _, l := range lines {
		b.Write(l.text)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// kindTable returns the number of lines by kind, in the order of the kinds.
func kindTable(lines []line) []byte {
	counts := map[string]int{}
	for _, l := range lines {
		counts[l.kind]++
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "| lines | kind | what should become of it |\n|---|---|---|\n")
	for _, k := range kinds {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", counts[k.name], k.name, k.meaning)
	}
	fmt.Fprintf(&b, "| %d | in all | |\n", len(lines))
	return b.Bytes()
}

// hashBelow returns a number below n that depends on its label only. It is a hash, not a
// random generator, so that a change in one place leaves the other lines unchanged.
func hashBelow(n int, label string, args ...any) int {
	sum := sha256.Sum256(fmt.Appendf(nil, "adjudications/1 "+label, args...))
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(n))
}

// startTime is when the first line was decided; each line is lineInterval later.
var startTime = time.Date(2026, 2, 2, 8, 0, 0, 0, time.UTC)

const (
	lineInterval = 41 * time.Second
	crockford    = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

// id returns a prefixed ULID with the time of the place.
func id(prefix string, at float64, label string) string {
	var out [26]byte
	ms := startTime.Add(time.Duration(at*float64(lineInterval/time.Millisecond)) * time.Millisecond).UnixMilli()
	for i := 9; i >= 0; i-- {
		out[i] = crockford[ms&31]
		ms >>= 5
	}
	sum := sha256.Sum256([]byte("adjudications/1 " + prefix + label))
	for i := range 16 {
		out[10+i] = crockford[sum[i]&31]
	}
	return prefix + string(out[:])
}
