// Command adjudications writes testdata/adjudications.jsonl: made-up adjudications
// of several tenants, with the misbehaviour that package fakeescrow plays, and with
// the conflicts and damaged lines that a door has to refuse.
//
// The same bytes come out every time. -table prints what the file holds, as a table
// in Markdown. The command may import the standard library only.
package main

//go:generate sh -c "go run . > ../../../testdata/adjudications.jsonl"

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
