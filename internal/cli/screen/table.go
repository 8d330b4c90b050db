package screen

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const (
	gap = "  " // between columns
	// minWrapWidth is the minimum width of a wrapping column.
	minWrapWidth = 13
	// comfortableWidth is the width of a wrapping column below which optional columns are left out.
	comfortableWidth = 20
)

// Column is a column of a table.
type Column struct {
	Name     string
	Right    bool // for numbers
	Wraps    bool // wraps if the table is too wide; for at most one column
	Optional bool // left out if the table is too wide
}

// Table writes rows under a line of column names. It fits the screen if a column wraps. Every row
// has a cell for each column; a cell may have several lines.
func (s *Screen) Table(columns []Column, rows [][]string) {
	if sum(minWidths(columns, naturalWidths(columns, rows))) > s.width {
		columns, rows = withoutOptional(columns, rows)
	}
	over := sum(naturalWidths(columns, rows)) - s.width
	w := table.NewWriter()
	w.SetStyle(s.plain())
	w.SuppressTrailingSpaces()
	w.SetColumnConfigs(s.configs(columns, naturalWidths(columns, rows), over))
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = s.paint(faint, c.Name)
	}
	w.AppendHeader(cells(names))
	for _, row := range rows {
		w.AppendRow(cells(row))
	}
	s.write(w.Render() + "\n")
}

// plain returns a style without a border, with a line under the names.
func (s *Screen) plain() table.Style {
	style := table.Style{
		Box:     table.BoxStyle{MiddleHorizontal: "─", MiddleVertical: gap, MiddleSeparator: gap},
		Format:  table.FormatOptionsDefault,
		Options: table.Options{SeparateColumns: true, SeparateHeader: true},
	}
	style.Format.Header = text.FormatDefault
	if s.color {
		style.Color.Separator = text.Colors{text.Faint}
	}
	return style
}

// configs returns the alignment of the columns, and narrows the wrapping column by over.
func (s *Screen) configs(columns []Column, widths []int, over int) []table.ColumnConfig {
	out := make([]table.ColumnConfig, len(columns))
	for i, c := range columns {
		out[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignLeft, AlignHeader: text.AlignLeft}
		if c.Right {
			out[i].Align, out[i].AlignHeader = text.AlignRight, text.AlignRight
		}
		if c.Wraps && over > 0 {
			out[i].WidthMax = max(widths[i]-over, min(minWrapWidth, widths[i]))
			out[i].WidthMaxEnforcer = func(cell string, width int) string { return strings.Join(wrap(cell, width), "\n") }
		}
	}
	return out
}

func cells(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, t := range texts {
		row[i] = t
	}
	return row
}

// naturalWidths returns the width of each column's widest cell.
func naturalWidths(columns []Column, rows [][]string) []int {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = displayWidth(c.Name)
		for _, row := range rows {
			for line := range strings.SplitSeq(row[i], "\n") {
				widths[i] = max(widths[i], displayWidth(line))
			}
		}
	}
	return widths
}

// minWidths limits the width of wrapping columns to comfortableWidth.
func minWidths(columns []Column, widths []int) []int {
	for i, c := range columns {
		if c.Wraps {
			widths[i] = min(widths[i], comfortableWidth)
		}
	}
	return widths
}

// sum returns the width of a table with these columns.
func sum(widths []int) int {
	total := -len(gap)
	for _, w := range widths {
		total += w + len(gap)
	}
	return total
}

// withoutOptional returns the table without its optional columns.
func withoutOptional(columns []Column, rows [][]string) ([]Column, [][]string) {
	var kept []Column
	less := make([][]string, len(rows))
	for i, c := range columns {
		if c.Optional {
			continue
		}
		kept = append(kept, c)
		for n, row := range rows {
			less[n] = append(less[n], row[i])
		}
	}
	return kept, less
}
