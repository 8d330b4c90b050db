package main

import (
	"cmp"
	"fmt"
	"slices"
)

// tenants and the currencies that each deals in.
var tenants = []struct {
	name       string
	currencies []string
}{
	{"northwind-homes", []string{"USD", "USD", "CAD"}},
	{"atelier-market", []string{"EUR", "EUR", "CHF"}},
	{"kaiyo-works", []string{"JPY", "JPY", "USD"}},
	{"gulf-charter", []string{"KWD", "USD", "EUR"}},
	{"lumen-studio", []string{"GBP", "SEK", "GBP"}},
}

// prices of a currency in minor units: least, how many steps above it, and step.
var prices = map[string]struct{ least, steps, step int }{
	"USD": {4500, 4000, 250},
	"CAD": {6000, 3000, 250},
	"EUR": {3900, 4000, 250},
	"CHF": {5000, 3600, 250},
	"GBP": {3500, 3000, 250},
	"SEK": {45000, 2200, 2500},
	"JPY": {8000, 2900, 500},   // no minor unit
	"KWD": {18000, 16000, 250}, // a thousand fils to the dinar
}

// ordinaryLines returns the ordinary cases: in mixed order, one to four on an escrow, which
// holds their sum or a little more.
func ordinaryLines() []line {
	var lines []line
	for _, k := range kinds {
		for range k.count {
			lines = append(lines, line{kind: k.name, adjudication: adjudication{Simulate: k.simulate}})
		}
	}
	shuffle(lines, "dealt")
	for first, escrow := 0, 0; first < len(lines); escrow++ {
		n := min([]int{1, 1, 1, 1, 1, 1, 2, 2, 3, 4}[hashBelow(10, "cases %d", escrow)], len(lines)-first)
		assignEscrow(lines[first:first+n], escrow)
		first += n
	}
	shuffle(lines, "placed")
	assignIDs(lines)
	return lines
}

// shuffle orders the lines by a hash.
func shuffle(lines []line, label string) {
	lots := map[int]int{}
	for i := range lines {
		lines[i].at = float64(i)
		lots[i] = hashBelow(1<<40, "%s %d", label, i)
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(lots[int(a.at)], lots[int(b.at)]) })
	for i := range lines {
		lines[i].at = float64(i)
	}
}

// assignEscrow puts the lines on one escrow.
func assignEscrow(lines []line, escrow int) {
	tenant := tenants[hashBelow(len(tenants), "tenant %d", escrow)]
	currency := tenant.currencies[hashBelow(len(tenant.currencies), "currency %d", escrow)]
	var sum int64
	for i := range lines {
		minor := price(currency, fmt.Sprintf("%d.%d", escrow, i))
		sum += minor
		lines[i].Tenant = tenant.name
		lines[i].EscrowReference = fmt.Sprint(escrow) // until it is named
		lines[i].Outcome = []string{"release", "release", "release", "refund"}[hashBelow(4, "outcome %d.%d", escrow, i)]
		lines[i].Amount = money{Minor: minor, Currency: currency}
	}
	if hashBelow(4, "rest %d", escrow) == 0 { // a part of the escrow is not decided yet
		sum += price(currency, fmt.Sprintf("rest %d", escrow))
	}
	for i := range lines {
		lines[i].Held = money{Minor: sum, Currency: currency}
	}
}

// price returns small amounts more often than large ones, as real prices are.
func price(currency, label string) int64 {
	p := prices[currency]
	steps := hashBelow(p.steps, "price %s", label) * hashBelow(1000, "lean %s", label) / 1000
	return int64(p.least + steps*p.step)
}

// assignIDs gives the lines their ids, by their places.
func assignIDs(lines []line) {
	escrows := map[string]string{}
	for i := range lines {
		l := &lines[i]
		label := fmt.Sprint("ordinary ", i)
		l.TransactionReceiptID = id("txr_", l.at, label)
		l.SubmissionReceiptID = id("sub_", l.at+0.2, label)
		l.AdjudicationID = id("adj_", l.at+0.6, label)
		if escrows[l.EscrowReference] == "" {
			escrows[l.EscrowReference] = id("esc_", l.at-200, label) // held days before
		}
		l.EscrowReference = escrows[l.EscrowReference]
		if hashBelow(12, "explicit %d", i) == 0 {
			l.Generation = 1
		}
	}
}
