// Command lint has the checks that neither go vet nor staticcheck makes: errors that are
// dropped or compared with ==, assignments that nobody reads, responses and rows that stay open.
// It is a tool for go vet, which reads each package once and keeps what passed in its cache:
//
//	go vet -vettool=lint ./...
//
// .golangci.yaml names the same checks for editors.
package main

import (
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/golangci/rowserrcheck/passes/rowserr"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/ryanrolds/sqlclosecheck/pkg/analyzer"
	"github.com/timakin/bodyclose/passes/bodyclose"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/unitchecker"
)

// What closes a thing that was only read, or ends a transaction that was committed before, returns
// nothing that its caller could do anything about.
var noUse = []string{
	"(*database/sql.Rows).Close",
	"(*database/sql.Tx).Rollback",
}

func main() {
	errcheck.DefaultExcludedSymbols = append(errcheck.DefaultExcludedSymbols, noUse...)
	unitchecker.Main(
		butForTests(bodyclose.Analyzer),
		butForTests(errcheck.Analyzer),
		errorlint.NewAnalyzer(),
		ineffassign.Analyzer,
		rowserr.NewAnalyzer("database/sql", "github.com/jmoiron/sqlx"),
		analyzer.NewAnalyzer(),
	)
}

// butForTests leaves out what an analyzer finds in tests: their servers answer on a connection that
// the test itself looks at, and the recorders that they read have no connection.
func butForTests(a *analysis.Analyzer) *analysis.Analyzer {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			if !strings.HasSuffix(pass.Fset.Position(d.Pos).Filename, "_test.go") {
				report(d)
			}
		}
		return run(pass)
	}
	return a
}
