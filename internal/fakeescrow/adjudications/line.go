package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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

// build makes every line, in the order of the file.
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

// kindTable counts the lines by kind, in the order of the kinds.
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
