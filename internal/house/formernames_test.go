package house

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	backticked = regexp.MustCompile("`([^`]+)`")
	heading    = regexp.MustCompile(`(?m)^## `)
	tables     = regexp.MustCompile(`(?ms)^(?:CREATE|ALTER) (?:TABLE|VIEW) recourse\.(\w+)(.*?;)$`)
	columns    = regexp.MustCompile(`(?m)^ +(?:ADD COLUMN )?([a-z_]+) +[a-z]|ADD COLUMN ([a-z_]+)`)
)

// A name is where the page of former names says that it is now.
func TestNamesThatChangedExist(t *testing.T) {
	t.Parallel()
	schema := map[string][]string{} // the columns of each table, and no column of a view
	settings := ""
	pages, err := filepath.Glob("../schema/migrations/*.sql")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d files of SQL, %v", len(pages), err)
	}
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		settings += string(page)
		for _, table := range tables.FindAllStringSubmatch(string(page), -1) {
			schema[table[1]] = append(schema[table[1]], "")
			for _, column := range columns.FindAllStringSubmatch(table[2], -1) {
				schema[table[1]] = append(schema[table[1]], column[1]+column[2])
			}
		}
	}
	values, members := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.dir != thisPackage && !strings.HasSuffix(s.name, "_test.go") {
			namesOutside(s, values, members)
		}
	}
	exists := map[string]func(row, now string) bool{
		"Tables, views and settings": func(row, now string) bool {
			if strings.Contains(row, "setting `") {
				return strings.Contains(settings, "'"+now+"'")
			}
			return schema[now] != nil
		},
		"Columns": func(row, now string) bool {
			first, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
			for _, table := range backticked.FindAllStringSubmatch(first, -1) {
				if !slices.Contains(schema[table[1]], now) {
					return false
				}
			}
			return true
		},
		"Subtypes of receipts, and values in them": func(_, now string) bool {
			prefix, _, of := strings.Cut(now, ":")
			return values[now] || of && values[prefix+":"]
		},
		"Redis":           func(_, now string) bool { return values[now] },
		"Members of JSON": func(_, now string) bool { return members[now] },
	}
	checked := 0
	page := guides(t)["internal/schema/migrations/NAMES.md"]
	for _, section := range heading.Split(page, -1)[1:] {
		title, text, _ := strings.Cut(section, "\n")
		for _, row := range strings.Split(text, "\n") {
			if !strings.HasPrefix(row, "| ") || strings.HasPrefix(row, "| then") || strings.Contains(row, "| then |") {
				continue
			}
			if exists[title] == nil {
				t.Fatalf("%q has names, and nothing checks them", title)
			}
			cells := strings.Split(row, "|")
			for _, now := range backticked.FindAllStringSubmatch(cells[len(cells)-2], -1) {
				if checked++; !exists[title](row, now[1]) {
					t.Errorf("%s: %s does not exist", title, now[1])
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("%d names of the page are checked", checked)
	}
}

// namesOutside adds the texts of a file, and the names of JSON in the tags of its fields.
func namesOutside(s source, values, members map[string]bool) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if n.Tag != nil {
				for _, found := range tagNames.FindAllStringSubmatch(n.Tag.Value, -1) {
					members[found[1]] = true
				}
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				values[text] = true
			}
		}
		return true
	})
}
