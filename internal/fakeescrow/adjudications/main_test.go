package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func built(t *testing.T) []line {
	t.Helper()
	lines, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestTheFileIsWhatTheCommandWrites(t *testing.T) {
	t.Parallel()
	got, err := os.ReadFile("../../../testdata/adjudications.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, file(built(t))) {
		t.Error("testdata/adjudications.jsonl differs: go generate ./internal/fakeescrow/adjudications")
	}
	if !bytes.Equal(file(built(t)), file(built(t))) {
		t.Error("two runs differ")
	}
}

func TestTheKindsHaveRealisticShares(t *testing.T) {
	t.Parallel()
	lines := built(t)
	if len(lines) < 320 {
		t.Errorf("%d lines", len(lines))
	}
	seen := map[string]map[string]int{"tenant": {}, "currency": {}, "outcome": {}, "kind": {}, "simulate": {}}
	for _, l := range lines {
		seen["kind"][l.kind]++
		if l.kind == malformed {
			continue
		}
		words, err := json.Marshal(l.Simulate)
		if err != nil {
			t.Fatal(err)
		}
		seen["simulate"][string(words)]++
		seen["tenant"][l.Tenant]++
		seen["currency"][l.Amount.Currency]++
		seen["outcome"][l.Outcome]++
	}
	if len(seen["tenant"]) < 4 || len(seen["currency"]) < 6 || len(seen["outcome"]) != 2 {
		t.Errorf("%v", seen)
	}
	for _, c := range []string{"JPY", "KWD"} {
		if seen["currency"][c] < 5 {
			t.Errorf("%d lines in %s", seen["currency"][c], c)
		}
	}
	for _, k := range kinds {
		if seen["kind"][k.name] < 2 || k.count > 0 && seen["kind"][k.name] != k.count {
			t.Errorf("%d lines of %s", seen["kind"][k.name], k.name)
		}
	}
	for words, band := range map[string][2]int{ // percent of all lines
		`"ok"`:               {60, 70},
		`["retryable","ok"]`: {9, 14},
		`"refused"`:          {5, 7},
		`"retryable"`:        {3, 5},
	} {
		if p := 100 * seen["simulate"][words] / len(lines); p < band[0] || p > band[1] {
			t.Errorf("%s: %d%%", words, p)
		}
	}
}

func TestOrdinaryCasesFitTheirEscrows(t *testing.T) {
	t.Parallel()
	held, sum, cases := map[string]money{}, map[string]int64{}, map[string]int{}
	ids := map[string]bool{}
	for _, l := range ordinaryLines() {
		for _, id := range []string{l.TransactionReceiptID, l.SubmissionReceiptID, l.AdjudicationID} {
			if ids[id] || len(id) != 30 {
				t.Errorf("id %q", id)
			}
			ids[id] = true
		}
		if h, ok := held[l.EscrowReference]; ok && h != l.Held {
			t.Errorf("%s holds %v and %v", l.EscrowReference, h, l.Held)
		}
		if l.Amount.Minor < 1 || l.Amount.Currency != l.Held.Currency {
			t.Errorf("%s: %v of %v", l.TransactionReceiptID, l.Amount, l.Held)
		}
		held[l.EscrowReference] = l.Held
		sum[l.EscrowReference] += l.Amount.Minor
		cases[l.EscrowReference]++
	}
	several := 0
	for escrow, h := range held {
		if sum[escrow] > h.Minor {
			t.Errorf("%s holds %d for %d", escrow, h.Minor, sum[escrow])
		}
		if cases[escrow] > 1 {
			several++
		}
	}
	if several < 40 {
		t.Errorf("%d escrows with several cases", several)
	}
}

func TestEachMadeLineBreaksTheRuleItIsMadeFor(t *testing.T) {
	t.Parallel()
	first := map[string]line{}  // by transaction
	opened := map[string]line{} // by escrow
	free := map[string]int64{}
	highest := map[string]int{}
	for _, l := range built(t) {
		if l.kind == malformed {
			continue
		}
		o, again := first[l.TransactionReceiptID]
		e, known := opened[l.EscrowReference]
		generation := max(l.Generation, 1)
		var ok bool
		switch l.kind {
		case duplicate:
			ok = bytes.Equal(l.text, o.text)
		case otherContent:
			ok = l.Outcome == o.Outcome && l.Amount != o.Amount && generation == 1
		case opposite:
			ok = again && l.Outcome != o.Outcome && l.Amount == o.Amount && generation == 1
		case afterLive, afterDead, afterPartial:
			ok = again && generation == 2 && highest[l.TransactionReceiptID] == 1
		case stale:
			ok = again && generation == 1 && highest[l.TransactionReceiptID] == 2
		case exceeds:
			ok = !again && known && e.Held == l.Held && l.Amount.Minor > free[l.EscrowReference]
		case otherHeld:
			ok = !again && known && e.Held != l.Held && l.Amount.Minor <= free[l.EscrowReference]
		default:
			ok = !again
			if !known {
				opened[l.EscrowReference], free[l.EscrowReference] = l, l.Held.Minor
			}
			free[l.EscrowReference] -= l.Amount.Minor
		}
		if !ok {
			t.Errorf("%s: %s", l.kind, l.text)
		}
		if !again {
			first[l.TransactionReceiptID] = l
		}
		highest[l.TransactionReceiptID] = max(highest[l.TransactionReceiptID], generation)
	}
}

// sound reports whether a strict reader accepts a line.
func sound(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	a := adjudication{Generation: 1}
	if d.Decode(&a) != nil || strings.ContainsRune(string(text), '\\') {
		return false
	}
	for _, s := range []string{a.TransactionReceiptID, a.SubmissionReceiptID, a.AdjudicationID, a.Tenant, a.EscrowReference} {
		if s == "" || len(s) > 64 {
			return false
		}
	}
	_, known := prices[a.Amount.Currency]
	return known && a.Amount.Currency == a.Held.Currency && a.Generation >= 1 &&
		a.Amount.Minor >= 1 && a.Amount.Minor <= min(a.Held.Minor, 1<<53-1) && (a.Outcome == "release" || a.Outcome == "refund")
}

func TestOnlyMalformedLinesAreUnsound(t *testing.T) {
	t.Parallel()
	for _, l := range built(t) {
		if sound(l.text) == (l.kind == malformed) || bytes.ContainsRune(l.text, '\n') {
			t.Errorf("%s: %s", l.kind, l.text)
		}
	}
}
