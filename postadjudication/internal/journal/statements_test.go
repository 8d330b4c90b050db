package journal_test

import (
	"database/sql"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// wholeStatements returns the SQL statements on the schema that stand in one string each, by
// where they stand, of all packages. Fragments that are joined to others are left out.
func wholeStatements(t *testing.T) map[string]string {
	t.Helper()
	begin := regexp.MustCompile(`^\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b`)
	out := map[string]string{}
	root := filepath.Join("..", "..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				return false
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				if n.Kind == token.STRING && err == nil && begin.MatchString(text) && strings.Contains(text, "recourse.") {
					out[strings.TrimPrefix(set.Position(n.Pos()).String(), root+string(filepath.Separator))] = text
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Statements that are spelled outside of the journal, in the chaos run, measurements and
// tests, name tables and columns that the schema has.
func TestStatementsNameWhatTheSchemaHas(t *testing.T) {
	t.Parallel()
	db := testkit.OpenAsOwner(t, testkit.Owner(t, testkit.Migrated(t)))
	statements := wholeStatements(t)
	ofTests := regexp.MustCompile(`"recourse\.(made|was|stolen)"`) // tables that tests create
	prepared, onTables := 0, 0                                     // on tables that tests create
	for at, text := range statements {
		err := prepare(t, db, text)
		var refused *pq.Error
		switch {
		case err == nil:
			prepared++
		case !errors.As(err, &refused):
			t.Fatalf("%s: %v", at, err)
		case ofTests.MatchString(refused.Message):
			onTables++
		case refused.Code == "42703" || refused.Code == "42P01" && strings.Contains(refused.Message, "recourse."):
			t.Errorf("%s: %v", at, err)
		}
	}
	if others := len(statements) - prepared - onTables; prepared < 300 || others > 70 {
		t.Errorf("of %d statements %d are checked, %d are on tables of tests, %d can't be", len(statements), prepared, onTables, others)
	}
}

// prepare has the server analyse a statement, without running it. An id stands for what a test formats
// into it.
func prepare(t *testing.T, db *sql.DB, text string) error {
	t.Helper()
	s, err := db.Prepare(strings.ReplaceAll(text, `'%s'`, `'`+uuid.Nil.String()+`'`))
	if err != nil {
		return err
	}
	return s.Close()
}
