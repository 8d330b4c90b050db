package door_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/redact"
)

// What a door says of a refusal is redacted, since it may name what a client sent. Nothing of its own text may be taken for
// a secret.
func TestNoTextOfOursIsRedacted(t *testing.T) {
	t.Parallel()
	texts := 0
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			for _, argument := range call.Args {
				literal, is := argument.(*ast.BasicLit)
				if !is || literal.Kind != token.STRING || !refuses(call) {
					continue
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				if texts++; redact.Text(text) != text {
					t.Errorf("%s: %q becomes %q", name, text, redact.Text(text))
				}
			}
			return true
		})
		return nil
	})
	if err != nil || texts < 300 {
		t.Fatal(texts, err)
	}
}

// refuses reports whether a call makes a refusal, by its name.
func refuses(call *ast.CallExpr) bool {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	switch name {
	case "NewRefusal", "keyFailure", "WithField", "Invalid", "InvalidRequest", "InvalidPayload", "InvalidPolicy", "Unsupported", "Conflict", "Duplicate", "Own", "Unavailable", "RateLimited", "wrong", "problem", "refuse":
		return true
	}
	return false
}
