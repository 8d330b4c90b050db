package fakeescrow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/settlement"
)

// The words of payload.simulate.
const (
	wordOK        = "ok"
	wordRetryable = "retryable"
	wordRefused   = "refused"
	wordHang      = "hang"
	wordDrop      = "drop"
	wordPanic     = "panic"
	wordLate      = "late"
	wordPartial   = "partial"
	wordDark      = "dark"
	wordLost      = "lost"
	wordLater     = "later"
	wordFunds     = "funds"
	wordWait      = "wait"
	wordLegs      = "legs"
	wordWhole     = "whole"
	wordAccept    = "accept"
	wordDecline   = "decline"
)

// The words of payload.lookup, besides ok.
const (
	wordLag    = "lag"
	wordLie    = "lie"
	wordFail   = "fail"
	wordAbsent = "absent"
)

var (
	callWords = []string{wordOK, wordRetryable, wordRefused, wordHang, wordDrop, wordPanic, wordLate, wordPartial, wordDark, wordLost,
		wordLater, wordFunds, wordWait, wordLegs, wordWhole, wordAccept, wordDecline}
	lookupWords = []string{wordOK, wordLag, wordLie, wordFail, wordAbsent}
)

// request is the body of an execution. Members that only Recourse needs are not
// read.
type request struct {
	Tenant               string             `json:"tenant"`
	TransactionReceiptID string             `json:"transaction_receipt_id"`
	EscrowReference      string             `json:"escrow_reference"`
	Outcome              settlement.Outcome `json:"outcome"`
	Generation           int64              `json:"generation"`
	Amount               settlement.Money   `json:"amount"`
	Held                 settlement.Money   `json:"held"`
	Payload              json.RawMessage    `json:"payload"`

	words   []string
	lookups []string // nil when it has none
}

func parseRequest(raw []byte) (request, error) {
	var r request
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, err
	}
	switch {
	case r.Tenant == "" || r.TransactionReceiptID == "" || r.EscrowReference == "":
		return r, errors.New("tenant, transaction_receipt_id or escrow_reference is missing")
	case r.Outcome != settlement.Release && r.Outcome != settlement.Refund:
		return r, fmt.Errorf("outcome is %q", r.Outcome)
	case r.Amount.Minor < 1 || r.Amount.Currency == "":
		return r, errors.New("amount is not a positive amount of a currency")
	}
	var p struct {
		Lookup json.RawMessage `json:"lookup"`
	}
	if json.Unmarshal(r.Payload, &p) != nil {
		p.Lookup = nil
	}
	words, err := parseWords(r.Payload)
	r.words = words
	if err == nil {
		r.lookups, err = parseList("lookup", p.Lookup, lookupWords)
	}
	return r, err
}

// parseWords reads simulate from a payload. A payload that is no object, or has no
// such member, means ok.
func parseWords(payload json.RawMessage) ([]string, error) {
	var p struct {
		Simulate json.RawMessage `json:"simulate"`
	}
	if json.Unmarshal(payload, &p) != nil {
		p.Simulate = nil
	}
	words, err := parseList("simulate", p.Simulate, callWords)
	if len(words) == 0 {
		words = []string{wordOK}
	}
	return words, err
}

// parseList reads words out of a member of a payload; none when the member is missing.
func parseList(member string, raw json.RawMessage, known []string) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var words []string
	var line string
	if json.Unmarshal(raw, &line) == nil {
		words = strings.Split(line, ",")
	} else if err := json.Unmarshal(raw, &words); err != nil {
		return nil, fmt.Errorf("payload.%s is neither words nor a list of words", member)
	}
	for i, w := range words {
		words[i] = strings.TrimSpace(w)
		if !slices.Contains(known, words[i]) {
			return nil, fmt.Errorf("payload.%s has %q", member, words[i])
		}
	}
	return words, nil
}

// wordAt returns the word of the nth call, counted from 0.
func wordAt(words []string, n int) string { return words[min(n, len(words)-1)] }
