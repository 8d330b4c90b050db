package screen

import (
	"slices"
	"strings"
)

// indent is before what stands below a row.
const indent = "   "

// belowRows has the columns that are too wide for a table, and their cells by row.
type belowRows struct {
	columns []Column
	rows    [][]string
}

// moveBelow moves the widest columns of a table below its rows until the rest fits a width. One column stays.
func moveBelow(columns []Column, rows [][]string, width int) ([]Column, [][]string, belowRows) {
	var moved []int
	left, leftRows := columns, rows
	places := make([]int, len(columns)) // of the left columns among all
	for i := range places {
		places[i] = i
	}
	for len(left) > 1 && minWidth(left, leftRows) > width {
		at := widestColumn(left, leftRows)
		moved = append(moved, places[at])
		left, leftRows = without(at, left, leftRows)
		places = slices.Delete(places, at, at+1)
	}
	slices.Sort(moved)
	below := belowRows{rows: make([][]string, len(rows))}
	for _, at := range moved {
		below.columns = append(below.columns, columns[at])
		for i, row := range rows {
			below.rows[i] = append(below.rows[i], row[at])
		}
	}
	return left, leftRows, below
}

// widestColumn returns the column that needs most width.
func widestColumn(columns []Column, rows [][]string) int {
	widest, most := 0, -1
	for i, width := range minWidths(columns, rows) {
		if width > most {
			widest, most = i, width
		}
	}
	return widest
}

// lines returns what stands below a row: each cell behind the name of its column, as many in a line as fit. Empty cells
// are left out.
func (b belowRows) lines(row, width int) []string {
	var out []string
	line := ""
	for i, c := range b.columns {
		cell := strings.Join(strings.Fields(b.rows[row][i]), " ")
		if cell == "" {
			continue
		}
		cell = c.Name + " " + cell
		if line != "" && displayWidth(indent+line+gap+cell) <= width {
			line += gap + cell
			continue
		}
		if line != "" {
			out = append(out, line)
		}
		pieces := wrap(cell, width-len(indent))
		out, line = append(out, pieces[:len(pieces)-1]...), pieces[len(pieces)-1]
	}
	if line != "" {
		out = append(out, line)
	}
	for i := range out {
		out[i] = indent + out[i]
	}
	return out
}
