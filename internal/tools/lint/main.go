// Command lint has the checks of go vet, and those that neither go vet nor staticcheck makes: errors
// that are dropped or compared with ==, assignments that nobody reads, responses and rows that stay
// open. It is a tool for go vet, which reads each package once and keeps what passed in its cache:
//
//	go vet -vettool=lint ./...
//
// .golangci.yaml names the same checks for editors.
package main

import (
	"regexp"
	"slices"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/golangci/rowserrcheck/passes/rowserr"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/ryanrolds/sqlclosecheck/pkg/analyzer"
	"github.com/timakin/bodyclose/passes/bodyclose"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
)

// What closes a thing that was only read, or ends a transaction that was committed before, returns
// nothing that its caller could do anything about.
var noUse = []string{
	"(*database/sql.Conn).Close",
	"(*database/sql.DB).Close",
	"(*database/sql.Rows).Close",
	"(*database/sql.Stmt).Close",
	"(*database/sql.Tx).Rollback",
	"(io.Closer).Close",
	"(io.ReadCloser).Close",
	"(*github.com/recourse-dev/recourse/internal/door.Refusal).WithField", // returns its receiver, which is an error
}

func main() {
	errcheck.DefaultExcludedSymbols = append(errcheck.DefaultExcludedSymbols, noUse...)
	compared := errorlint.NewAnalyzer()
	// What walks a tree of errors has to ask what one of them is, and not what it wraps.
	if err := compared.Flags.Set("asserts", "false"); err != nil {
		panic(err)
	}
	unitchecker.Main(append(slices.Clone(vet.Suite),
		butForTests(bodyclose.Analyzer),
		butForTests(errcheck.Analyzer),
		compared,
		ineffassign.Analyzer,
		rowserr.NewAnalyzer("database/sql", "github.com/jmoiron/sqlx"),
		butForTests(analyzer.NewAnalyzer()),
	)...)
}

// tests are the tests and the programs that only test. Their servers answer on a connection that the
// test itself looks at, and the recorders that they read have no connection.
var tests = regexp.MustCompile(`_test\.go$|internal/(bench|chaos)/|internal/cli/clitest/|internal/journal/journaltest/|postadjudication/internal/rig/`)

// butForTests leaves out what an analyzer finds in tests.
func butForTests(a *analysis.Analyzer) *analysis.Analyzer {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			if !tests.MatchString(pass.Fset.Position(d.Pos).Filename) {
				report(d)
			}
		}
		return run(pass)
	}
	return a
}
