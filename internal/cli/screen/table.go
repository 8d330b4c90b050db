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

// Table writes rows under a line of column names. On a terminal no line is longer than the terminal is wide: texts wrap,
// optional columns are left out and named in a line below the table, and what is still too wide stands in lines of its own
// below each row, with its name. Without a terminal every column is written. Every row has a cell for each column; a
// cell may have several lines.
func (s *Screen) Table(columns []Column, rows [][]string) {
	if s.whole {
		s.tableWith(columns, rows, belowRows{})
		return
	}
	all := columns
	for minWidth(columns, rows) > s.width {
		at := s.leftOut(columns, rows)
		if at < 0 {
			break
		}
		columns, rows = without(at, columns, rows)
	}
	shown := columns
	columns, rows, below := moveBelow(columns, rows, s.width)
	s.tableWith(columns, rows, below)
	if len(shown) < len(all) {
		var left []string
		for _, c := range all {
			if !slices.Contains(shown, c) {
				left = append(left, c.Name)
			}
		}
		s.Text("Not shown for width: %s (--json has them).", strings.Join(left, ", "))
	}
}

// tableWith writes a table, and below each of its rows what stands below it.
func (s *Screen) tableWith(columns []Column, rows [][]string, below belowRows) {
	w := table.NewWriter()
	w.SetStyle(s.plain())
	w.SuppressTrailingSpaces()
	widths := wrapWidths(columns, naturalWidths(columns, rows), s.width, !s.whole)
	w.SetColumnConfigs(configs(columns, widths))
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	header, height := wrapCells(names, widths)
	for i, cell := range header {
		header[i] = s.paintLines(cell)
	}
	w.AppendHeader(cells(header))
	heights := make([]int, len(rows))
	for i, row := range rows {
		row, heights[i] = wrapCells(row, widths)
		w.AppendRow(cells(row))
	}
	lines := strings.Split(w.Render(), "\n")
	at := min(height+1, len(lines)) // behind the names and the line under them
	out := lines[:at:at]
	for i := range rows {
		end := min(at+heights[i], len(lines))
		out = append(append(out, lines[at:end]...), below.lines(i, s.width)...)
		at = end
	}
	s.write(strings.Join(append(out, lines[at:]...), "\n") + "\n")
}

// paintLines paints the name of a column, each of its lines alone.
func (s *Screen) paintLines(name string) string {
	lines := strings.Split(name, "\n")
	for i, line := range lines {
		lines[i] = s.paint(faint, line)
	}
	return strings.Join(lines, "\n")
}

// wrapCells wraps the cells of a row to the widths of their columns, and returns how many lines the row has.
func wrapCells(row []string, widths []int) (out []string, height int) {
	out, height = make([]string, len(row)), 1
	for i, cell := range row {
		lines := strings.Split(cell, "\n")
		if slices.ContainsFunc(lines, func(line string) bool { return displayWidth(line) > widths[i] }) {
			lines = wrap(cell, widths[i])
		}
		out[i], height = strings.Join(lines, "\n"), max(height, len(lines))
	}
	return out, height
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

// configs returns the alignments and the widths of the columns.
func configs(columns []Column, widths []int) []table.ColumnConfig {
	out := make([]table.ColumnConfig, len(columns))
	for i, c := range columns {
		out[i] = table.ColumnConfig{Number: i + 1, WidthMin: widths[i], Align: text.AlignLeft, AlignHeader: text.AlignLeft}
		if c.Right {
			out[i].Align, out[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	return out
}

// wrapWidths returns the widths of the columns of a table that fits a width. The widest wrapping
// columns are narrowed to one width. last says that a single column is narrowed in any case.
func wrapWidths(columns []Column, widths []int, width int, last bool) []int {
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
	if last && len(out) == 1 {
		out[0] = min(out[0], width)
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

// minWidths returns the widths of columns whose wrapping ones are as narrow as they may be.
func minWidths(columns []Column, rows [][]string) []int {
	widths := naturalWidths(columns, rows)
	for i, c := range columns {
		if c.Wraps {
			widths[i] = min(widths[i], minWrapWidth)
		}
	}
	return widths
}

// minWidth returns the width of a table whose wrapping columns have their minimum width.
func minWidth(columns []Column, rows [][]string) int { return sum(minWidths(columns, rows)) }

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
