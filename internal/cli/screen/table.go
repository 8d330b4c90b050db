package screen

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const (
	gap = "  " // between columns
	// minWrapWidth is the minimum width of a wrapping column. Optional columns are left out if it is
	// reached and the table is still too wide.
	minWrapWidth = 13
)

// Column is a column of a table.
type Column struct {
	Name     string
	Right    bool // for numbers
	Wraps    bool // wraps if the table is too wide
	Optional bool // left out if the table is too wide with every wrapping column wrapped; as few as possible, the last one first
}

// Table writes rows under a line of column names. It fits the screen if columns wrap. Every row
// has a cell for each column; a cell may have several lines. A line below names the columns that
// were left out.
func (s *Screen) Table(columns []Column, rows [][]string) {
	all := columns
	for minWidth(columns, rows) > s.width {
		at := s.leftOut(columns, rows)
		if at < 0 {
			break
		}
		columns, rows = without(at, columns, rows)
	}
	w := table.NewWriter()
	w.SetStyle(s.plain())
	w.SuppressTrailingSpaces()
	w.SetColumnConfigs(configs(columns, naturalWidths(columns, rows), s.width))
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = s.paint(faint, c.Name)
	}
	w.AppendHeader(cells(names))
	for _, row := range rows {
		w.AppendRow(cells(row))
	}
	s.write(w.Render() + "\n")
	if len(columns) < len(all) {
		var left []string
		for _, c := range all {
			if !slices.Contains(columns, c) {
				left = append(left, c.Name)
			}
		}
		s.Text("Not shown for width: %s (--json has them).", strings.Join(left, ", "))
	}
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

// configs returns the alignment of the columns, and narrows wrapping columns so that the table fits
// a width.
func configs(columns []Column, widths []int, width int) []table.ColumnConfig {
	out := make([]table.ColumnConfig, len(columns))
	narrow := wrapWidths(columns, widths, width)
	for i, c := range columns {
		out[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignLeft, AlignHeader: text.AlignLeft}
		if c.Right {
			out[i].Align, out[i].AlignHeader = text.AlignRight, text.AlignRight
		}
		if narrow[i] < widths[i] {
			out[i].WidthMax = narrow[i]
			out[i].WidthMaxEnforcer = func(cell string, width int) string { return strings.Join(wrap(cell, width), "\n") }
		}
	}
	return out
}

// wrapWidths returns the widths of the columns of a table that fits a width. The widest wrapping
// columns are narrowed to one width.
func wrapWidths(columns []Column, widths []int, width int) []int {
	out := slices.Clone(widths)
	for sum(out) > width {
		widest := -1
		for i, c := range columns {
			if c.Wraps && out[i] > min(minWrapWidth, widths[i]) && (widest < 0 || out[i] >= out[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		out[widest]--
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

// minWidth returns the width of a table whose wrapping columns have their minimum width.
func minWidth(columns []Column, rows [][]string) int {
	widths := naturalWidths(columns, rows)
	for i, c := range columns {
		if c.Wraps {
			widths[i] = min(widths[i], minWrapWidth)
		}
	}
	return sum(widths)
}

// sum returns the width of a table with these columns.
func sum(widths []int) int {
	total := -len(gap)
	for _, w := range widths {
		total += w + len(gap)
	}
	return total
}

// leftOut returns the optional column to leave out: the last one without which the table fits, else
// the last one; -1 if none is optional.
func (s *Screen) leftOut(columns []Column, rows [][]string) int {
	last := -1
	for i, c := range slices.Backward(columns) {
		if !c.Optional {
			continue
		}
		if minWidth(without(i, columns, rows)) <= s.width {
			return i
		}
		last = max(last, i)
	}
	return last
}

// without returns a table without one of its columns.
func without(at int, columns []Column, rows [][]string) ([]Column, [][]string) {
	less := make([][]string, len(rows))
	for n, row := range rows {
		less[n] = slices.Delete(slices.Clone(row), at, at+1)
	}
	return slices.Delete(slices.Clone(columns), at, at+1), less
}
