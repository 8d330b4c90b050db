package conformance_test

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"strings"
	"testing"
)

// requirements are the demands of the extension for dead letters, and the sections of the reference by the
// prefixes of their tests.
var requirements = []string{
	"DLQ_001", "DLQ_002", "DLQ_003", "DLQ_004", "DLQ_005", "DLQ_006", "DLQ_R001", "DLQ_R002", "DLQ_R003", "DLQ_R004", "DLQ_R005",
	"END_", "FRA_", "STA_", "ENV_", "WRK_", "RTP_", "JER_", "LET_", "LST_", "BLK_", "RET_", "UNQ_", "EVT_", "MAN_", "MET_", "BAD_",
}

// Each requirement has a test that carries its id, and each test carries one.
func TestEveryRequirementHasItsTest(t *testing.T) {
	t.Parallel()
	tests := map[string]int{}
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
			known := false
			for _, id := range requirements {
				if rest, is := strings.CutPrefix(f.Name.Name, "Test"+id); is && (strings.HasSuffix(id, "_") || strings.HasPrefix(rest, "_")) {
					tests[id]++
					known = true
				}
			}
			if !known {
				t.Errorf("%s carries no id", f.Name.Name)
			}
		}
	}
	for _, id := range requirements {
		if tests[id] == 0 {
			t.Errorf("%s has no test", id)
		}
	}
}
