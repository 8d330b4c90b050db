package sheet

import (
	"bytes"
	"encoding/csv"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A spreadsheet reads the file of a TextWriter without a question, and has each text, time and number to the
// character. Of the same cells by NewWriter it keeps fewer, so the spreadsheet would have changed them.
func TestASpreadsheetKeepsTextsTimesAndLongNumbers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 18, 0, 0, 5000, time.UTC)
	texts := []string{
		"007", "12345678901234567890", "1-2", "1/2", "3e5", "2026-11-30", "18:00", "true", "01a22e11-8080-78c7-9551-2198f5b3375f", "-5", "+49 170", "=1+1", "@SUM(A1)",
		`say "x", then`, "é漢", " 7", "12 345,67", "0x1F", "'0", "100%", "€ 5", strings.Repeat("9", maxFormulaText),
	}
	want := append(slices.Clone(texts), "2026-11-30T18:00:00.000005Z", "9007199254740993", "-250", "999999999999999", "TRUE")
	cells := make([]any, 0, len(want))
	for _, text := range texts {
		cells = append(cells, text)
	}
	cells = append(cells, at, int64(1<<53+1), int64(-250), 999999999999999, true)
	kept := func(writer *Writer, err error, out *bytes.Buffer) (n int) {
		t.Helper()
		if err := errors.Join(err, writer.Write(cells...), writer.Flush()); err != nil {
			t.Fatal(err)
		}
		for i, got := range openInSpreadsheet(t, out.Bytes())[1] {
			if got == want[i] {
				n++
			} else if writer.textual {
				t.Errorf("%q is read as %q", want[i], got)
			}
		}
		return n
	}
	header := strings.Split(strings.Repeat("a", len(cells)), "")
	var textual, plain bytes.Buffer
	w, err := NewTextWriter(&textual, header...)
	n := kept(w, err, &textual)
	w, err = NewWriter(&plain, header...)
	if other := kept(w, err, &plain); n != len(want) || other >= n {
		t.Errorf("the spreadsheet kept %d of %d cells, and %d of NewWriter", n, len(want), other)
	}
}

// openInSpreadsheet returns the cells that LibreOffice has of a CSV file.
func openInSpreadsheet(t *testing.T, text []byte) [][]string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cells.csv"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	// Comma, quotes, UTF-8; written as its values, not as they are shown.
	convert := exec.Command("soffice", "-env:UserInstallation=file://"+dir+"/profile", "--headless", "--infilter=CSV:44,34,76", "--convert-to", "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false", "--outdir", filepath.Join(dir, "out"), filepath.Join(dir, "cells.csv"))
	if said, err := convert.CombinedOutput(); err != nil {
		t.Fatalf("soffice (on Debian: apt-get install libreoffice-calc-nogui): %v\n%s", err, said)
	}
	read, err := os.ReadFile(filepath.Join(dir, "out", "cells.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(read, []byte("\ufeff")))).ReadAll()
	if err != nil || len(lines) != 2 {
		t.Fatalf("%d lines, %v:\n%s", len(lines), err, read)
	}
	return lines
}
