package sheet

import (
	"encoding/csv"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNoCellIsTakenForAFormula(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "plain": "plain", "a=b": "a=b", "=1+1": "'=1+1", "+49": "'+49", "-cmd|'/C calc'!A0": "'-cmd|'/C calc'!A0", "@SUM(A1)": "'@SUM(A1)",
		"\t=1": "'\t=1", "\r=1": "'\r=1", "\n=1": "'\n=1", "'quoted": "''quoted", "＝1": "'＝1", "é=": "é=", "\xff=": "\xff=",
		"a;=1+1": "a;'=1+1", ";=1+1": ";'=1+1", ";\"=1\"": ";'\"=1\"", "a;'b": "a;''b", ";;-1": ";;'-1", "a; b;c": "a; b;c", ";＝1": ";'＝1", ";\ufeff=1": ";'\ufeff=1",
	} {
		if got := EscapeFormula(text); got != want || unescapeFormula(got) != text {
			t.Errorf("%q becomes %q and back %q, want %q", text, got, unescapeFormula(got), want)
		}
	}
}

// unescapeFormula returns the text from which EscapeFormula made cell.
func unescapeFormula(cell string) string {
	return strings.ReplaceAll(strings.TrimPrefix(cell, "'"), ";'", ";")
}

func TestALineIsWrittenAsRFC4180(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w, err := NewWriter(&out, "a", "b", "c", "d", "e", "f")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 1, 12, 0, 0, 5000, time.FixedZone("", 3600))
	if err := errors.Join(w.Write(`say "x", then`, int64(-250), 3, true, at, nil), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if want := "a,b,c,d,e,f\r\n\"say \"\"x\"\", then\",-250,3,true,2026-11-01T11:00:00.000005Z,\r\n"; out.String() != want {
		t.Errorf("%q\nwant\n%q", out.String(), want)
	}
	if w.Write("too few") == nil || w.Write(1, 2, 3, 4, 5, struct{}{}) == nil {
		t.Error("an invalid line was written")
	}
}

// Every text comes back unchanged, and no cell begins like a
// formula.
func TestTextsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.SliceOfN(rapid.StringMatching(`[=+\-@\t'",a\n ;é]{0,6}`), 2, 2).Draw(t, "cells")
		var out strings.Builder
		w, err := NewWriter(&out, "a", "b")
		if err := errors.Join(err, w.Write(cells[0], cells[1]), w.Flush()); err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
		if err != nil || len(lines) != 2 {
			t.Fatal(lines, err)
		}
		for i, cell := range lines[1] {
			if cell != "" && slices.Contains([]byte("=+-@\t\r\n"), cell[0]) {
				t.Fatalf("cell %q", cell)
			}
			if unescapeFormula(cell) != cells[i] {
				t.Fatalf("%q came back as %q", cells[i], unescapeFormula(cell))
			}
		}
	})
}

// A spreadsheet that starts cells at semicolons finds no formula either.
func TestNoTextIsAFormulaBehindASemicolon(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w, err := NewWriter(&out, "a", "b")
	if err := errors.Join(err, w.Write(";=1+1", "\ufeff=2;\"=3\""), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if want := "a,b\r\n\";'=1+1\",\"'=2;'\"\"=3\"\"\"\r\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// A terminal obeys no text of a table, and shows all of it.
func TestNoTextControlsATerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w, err := NewWriter(&out, "a\x1b[2J", "b", "c")
	if err := errors.Join(err, w.Write("\x1b]0;owned\a\u009b2Ja\x00\x7f", "in\u202evoice\u200b\u2066\ufeff", "tab\tline\nend é 漢 👩"), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if want := "a\ufffd[2J,b,c\r\n\"\ufffd]0;owned\ufffd\ufffd2Ja\ufffd\ufffd\",\"in\ufffdvoice\ufffd\ufffd\ufffd\",\"tab\tline\r\nend é 漢 👩\"\r\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
