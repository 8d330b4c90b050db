package house

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The command line leaves out the package that begins the text of an error: the package of the
// error is in the list that the command line knows.
func TestPackagesOfErrorsAreKnownToTheCommandLine(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../cli/shell/shell.go")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile("`\\^\\(([a-z|]+)\\): `").FindSubmatch(text)
	if list == nil {
		t.Fatal("the command line has no list of packages")
	}
	known, found := strings.Split(string(list[1]), "|"), 0
	for _, s := range sources(t) {
		root, _, _ := strings.Cut(s.dir, "/")
		public := slices.Contains([]string{"background", "postadjudication", "receipts", "retrypolicy", "settlement"}, root)
		if !public && s.dir != "internal/access" && s.dir != "internal/archive" || strings.HasSuffix(s.name, "_test.go") || strings.HasSuffix(s.dir, "test") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			value, err := strconv.Unquote(lit.Value)
			if prefix := s.file.Name.Name; err == nil && strings.HasPrefix(value, prefix+": ") {
				if found++; !slices.Contains(known, prefix) {
					t.Errorf("%s: packageName of internal/cli/shell does not know %q", s.set.Position(lit.Pos()), prefix)
				}
			}
			return true
		})
	}
	if found < 80 {
		t.Errorf("%d errors begin with their package", found)
	}
}
