package conformance_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"strings"
	"testing"
)

// requirements are the ids of the tests: the demands of the extension for dead letters, and those of each
// section of the reference, numbered from 1. KEY is of keys, which the specification leaves to the server.
func requirements() (ids []string) {
	ids = []string{"DLQ_001", "DLQ_002", "DLQ_003", "DLQ_004", "DLQ_005", "DLQ_006", "DLQ_R001", "DLQ_R002", "DLQ_R003", "DLQ_R004", "DLQ_R005"}
	for section, n := range map[string]int{
		"END": 7, "FRA": 11, "STA": 14, "ENV": 17, "WRK": 23, "RTP": 8, "JER": 4, "LET": 4, "LST": 3, "BLK": 4, "RET": 1, "UNQ": 5, "EVT": 4, "MAN": 2, "MET": 1, "BAD": 5, "QUE": 3, "BAT": 3, "KEY": 9,
	} {
		for i := range n {
			ids = append(ids, fmt.Sprintf("%s_%02d", section, i+1))
		}
	}
	return ids
}

// Each requirement has a test that carries its id, and each test carries one.
func TestEveryRequirementHasItsTest(t *testing.T) {
	t.Parallel()
	all, tests := requirements(), map[string]int{}
	var found []*ast.FuncDecl
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" || f.Name.Name == "TestEveryRequirementHasItsTest" {
				continue
			}
			found = append(found, f)
			known := false
			for _, id := range all {
				if strings.HasPrefix(f.Name.Name, "Test"+id+"_") {
					tests[id]++
					known = true
				}
			}
			if !known {
				t.Errorf("%s carries no id", f.Name.Name)
			}
		}
	}
	for _, id := range all {
		if tests[id] == 0 {
			t.Errorf("%s has no test", id)
		}
	}
	checkServers(t, found)
}
