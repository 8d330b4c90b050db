// Command adjudications writes testdata/adjudications.jsonl: made-up adjudications
// of several tenants, with the misbehaviour that package fakeescrow simulates, and with
// the conflicts and damaged lines that a reader has to refuse.
//
// The output is always the same to the byte. -table prints the number of lines by kind,
// as a table in Markdown. The command may import the standard library only.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	table := flag.Bool("table", false, "print what the file holds instead")
	flag.Parse()
	lines, err := build()
	out := file(lines)
	if *table {
		out = kindTable(lines)
	}
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "adjudications:", err)
		os.Exit(1)
	}
}

// kind is a kind of line. Ordinary kinds have a number and the words that the escrow
// service simulates; the others are derived from ordinary lines.
type kind struct {
	name     string
	count    int // of ordinary lines
	simulate any
	meaning  string
}

// The meanings assume three attempts of at most 400ms each.
var kinds = []kind{
	{"ok", 191, "ok", "settled or refunded at the first attempt"},
	{"retryable, ok", 34, []string{"retryable", "ok"}, "at the second"},
	{"retryable twice, ok", 9, []string{"retryable", "retryable", "ok"}, "at the third"},
	{"retryable", 14, "retryable", "dead letter after three attempts, nothing moved"},
	{"refused", 22, "refused", "dead letter after one attempt, nothing moved"},
	{"hang", 3, "hang", "three time-outs; the lookup proves that nothing moved; dead letter"},
	{"hang, ok", 2, []string{"hang", "ok"}, "unknown, then executed under the same key"},
	{"drop", 3, "drop", "paid without an answer, then already executed"},
	{"retryable, drop", 3, []string{"retryable", "drop"}, "the same, at the third attempt"},
	{"panic, ok", 3, []string{"panic", "ok"}, "paid, the executor panics, then already executed"},
	{"panic", 3, "panic", "three panics; the lookup finds the money moved"},
	{"late", 4, "late", "paid, answered after the limit, then already executed"},
	{"partial", 5, "partial", "half is moved: partially settled"},
	{"dark", 2, "dark", "paid without an answer, and no lookup says so: dead letter, unknown"},
	{"lost", 2, "lost", "the same, but nothing was moved"},
	{name: duplicate, meaning: "the existing run: nothing new"},
	{name: otherContent, meaning: "refused: `retry_key_mismatch`"},
	{name: opposite, meaning: "refused: the case has, or had, the other outcome"},
	{name: afterLive, meaning: "generation 2 while 1 is live, so refused: `conflicting_adjudication`"},
	{name: afterDead, meaning: "generation 2 supersedes the dead letter of 1"},
	{name: afterPartial, meaning: "generation 2 moves the rest"},
	{name: stale, meaning: "generation 1 again, after 2: refused, `stale_generation`"},
	{name: exceeds, meaning: "refused: `exceeds_held`"},
	{name: otherHeld, meaning: "refused: `escrow_mismatch`"},
	{name: malformed, meaning: "refused at submission, naming the error"},
}

// The kinds that are derived from ordinary lines.
const (
	duplicate    = "exact duplicate"
	otherContent = "same generation, other content"
	opposite     = "opposite outcome"
	afterLive    = "re-adjudicated while live"
	afterDead    = "re-adjudicated after death"
	afterPartial = "re-adjudicated after a part"
	stale        = "stale generation"
	exceeds      = "over what is held"
	otherHeld    = "other held or currency for the escrow"
	malformed    = "malformed"
)
