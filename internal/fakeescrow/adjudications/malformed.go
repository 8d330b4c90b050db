package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// corruption replaces a part of the text of a line.
type corruption struct {
	what    string
	replace func(l line) (from, to string)
}

var corruptions = []corruption{
	{"cut short", func(l line) (string, string) { return `,"held"` + tail(l, `,"held"`), "" }},
	{"a quote is missing", func(l line) (string, string) { return `"tenant":"`, `"tenant":` }},
	{"an array", func(l line) (string, string) { return string(l.text), "[" + string(l.text) + "]" }},
	{"unknown field", func(l line) (string, string) { return `,"outcome"`, `,"priority":"high","outcome"` }},
	{"escrow_reference is missing", func(l line) (string, string) {
		return `"escrow_reference":"` + l.EscrowReference + `",`, ""
	}},
	{"amount is missing", func(l line) (string, string) { return amount(l) + ",", "" }},
	{"negative amount", func(l line) (string, string) { return amount(l), withAmount(l, "-%d") }},
	{"zero", func(l line) (string, string) {
		return amount(l), `"amount":{"minor":0,"currency":"` + l.Amount.Currency + `"}`
	}},
	{"a fraction", func(l line) (string, string) { return amount(l), withAmount(l, "%d.5") }},
	{"a string", func(l line) (string, string) { return amount(l), withAmount(l, `"%d"`) }},
	{"beyond exact integers", func(l line) (string, string) {
		return amount(l), `"amount":{"minor":9007199254740993,"currency":"` + l.Amount.Currency + `"}`
	}},
	{"more than its own escrow holds", func(l line) (string, string) {
		return amount(l), fmt.Sprintf(`"amount":{"minor":%d,"currency":%q}`, l.Held.Minor+1, l.Held.Currency)
	}},
	{"unknown outcome", func(l line) (string, string) { return `"outcome":"` + l.Outcome, `"outcome":"chargeback` }},
	{"unknown currency", func(l line) (string, string) {
		return `"currency":"` + l.Amount.Currency + `"`, `"currency":"ZZQ"`
	}},
	{"amount and held in two currencies", func(l line) (string, string) {
		return `"held":{"minor":` + fmt.Sprint(l.Held.Minor) + `,"currency":"` + l.Held.Currency, `"held":{"minor":` + fmt.Sprint(l.Held.Minor) + `,"currency":"NOK`
	}},
	{"oversized id", func(l line) (string, string) {
		return l.TransactionReceiptID, l.TransactionReceiptID + strings.Repeat("0", 600)
	}},
	{"half of a surrogate pair", func(l line) (string, string) { return l.AdjudicationID, `adj_\ud83d` }},
	{"empty tenant", func(l line) (string, string) { return l.Tenant, "" }},
	{"generation 0", func(l line) (string, string) { return `"tenant"`, `"generation":0,"tenant"` }},
}

func tail(l line, from string) string {
	_, t, _ := strings.Cut(string(l.text), from)
	return t
}

func amount(l line) string {
	return fmt.Sprintf(`"amount":{"minor":%d,"currency":%q}`, l.Amount.Minor, l.Amount.Currency)
}

func withAmount(l line, format string) string {
	return fmt.Sprintf(`"amount":{"minor":`+format+`,"currency":%q}`, l.Amount.Minor, l.Amount.Currency)
}

// malformedLines returns one line of each fault, spread over the file. Each has its own
// transaction and escrow, so that accepting one would show.
func malformedLines(ordinary []line) ([]line, error) {
	var out []line
	for i, f := range corruptions {
		l := ordinary[(i+1)*len(ordinary)/(len(corruptions)+1)]
		l.kind, l.at, l.Simulate, l.Generation = malformed, l.at+0.7, "ok", 0
		label := malformed + " " + f.what
		l.TransactionReceiptID = id("txr_", l.at, label)
		l.SubmissionReceiptID = id("sub_", l.at+0.2, label)
		l.AdjudicationID = id("adj_", l.at+0.6, label)
		l.EscrowReference = id("esc_", l.at-200, label)
		text, err := json.Marshal(l.adjudication)
		if err != nil {
			return nil, err
		}
		l.text = text
		from, to := f.replace(l)
		if !bytes.Contains(text, []byte(from)) {
			return nil, fmt.Errorf("%s: %s does not have %q", f.what, text, from)
		}
		l.text = []byte(strings.ReplaceAll(string(text), from, to))
		out = append(out, l)
	}
	return out, nil
}
