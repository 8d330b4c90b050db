package screen

import "strings"

const (
	gap = "  " // between columns
	// slimmest is what a wrapping column is left at least.
	slimmest = 13
	// easy is what it is left before spare columns go.
	easy = 20
)

// Column is one of a table.
type Column struct {
	Name  string
	Right bool // for numbers
	Wraps bool // gives way, in several lines, when the table is too wide; for one column
	Spare bool // left out when the table is too wide
}

// Table writes rows under a line of names, no wider than the screen as long as
// there is a column that wraps. Every row has a cell for each column; a cell may have
// several lines.
func (s *Screen) Table(columns []Column, rows [][]string) {
	if sum(least(columns, natural(columns, rows))) > s.width {
		columns, rows = necessary(columns, rows)
	}
	widths := s.shrunk(columns, natural(columns, rows))
	names, rules := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		names[i] = s.paint(faint, c.Name)
		rules[i] = s.paint(faint, strings.Repeat("─", widths[i]))
	}
	var out strings.Builder
	for _, row := range append([][]string{names, rules}, rows...) {
		writeRow(&out, columns, widths, row)
	}
	s.write(out.String())
}

// writeRow writes one row, in as many lines as its tallest cell needs.
func writeRow(out *strings.Builder, columns []Column, widths []int, row []string) {
	cells := make([][]string, len(row))
	height := 1
	for i, cell := range row {
		cells[i] = wrap(cell, widths[i])
		height = max(height, len(cells[i]))
	}
	for n := range height {
		var line strings.Builder
		for i, lines := range cells {
			text := ""
			if n < len(lines) {
				text = lines[n]
			}
			pad := strings.Repeat(" ", max(0, widths[i]-breadth(text)))
			if i > 0 {
				line.WriteString(gap)
			}
			if columns[i].Right {
				line.WriteString(pad + text)
			} else {
				line.WriteString(text + pad)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// natural is what each column's widest cell needs.
func natural(columns []Column, rows [][]string) []int {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = breadth(c.Name)
		for _, row := range rows {
			for line := range strings.SplitSeq(row[i], "\n") {
				widths[i] = max(widths[i], breadth(line))
			}
		}
	}
	return widths
}

// least is what each column needs to be read with ease.
func least(columns []Column, widths []int) []int {
	for i, c := range columns {
		if c.Wraps {
			widths[i] = min(widths[i], easy)
		}
	}
	return widths
}

// sum is how wide a table with such columns is.
func sum(widths []int) int {
	total := -len(gap)
	for _, w := range widths {
		total += w + len(gap)
	}
	return total
}

// necessary is a table without its spare columns.
func necessary(columns []Column, rows [][]string) ([]Column, [][]string) {
	var kept []Column
	less := make([][]string, len(rows))
	for i, c := range columns {
		if c.Spare {
			continue
		}
		kept = append(kept, c)
		for n, row := range rows {
			less[n] = append(less[n], row[i])
		}
	}
	return kept, less
}

// shrunk takes what is too much from the column that wraps.
func (s *Screen) shrunk(columns []Column, widths []int) []int {
	over := sum(widths) - s.width
	for i, c := range columns {
		if c.Wraps && over > 0 {
			widths[i] = max(widths[i]-over, min(slimmest, widths[i]))
		}
	}
	return widths
}
