package house

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// whiteBox are the test files of public packages that test what these do not export. A file is
// only ever taken off: a new test uses what a user of the package can use, and an export_test.go
// gives it the rest.
var whiteBox = map[string][]string{
	"background": {"breaker", "breakermodel", "claimbackoff", "clockfilter", "decide", "failurewindow",
		"sweeper", "tampering", "trace", "transition"},
	"postadjudication":           {"unready"},
	"postadjudication/bulk":      {"runner"},
	"postadjudication/retention": {"prunerpages", "rules"},
	"postadjudication/audit":     {"audit", "file"},
	"receipts/receiptstest":      {"suite"},
}

// A package is public unless it is a program or below a folder named internal.
func TestTestsOfPublicPackagesAreBlackBox(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for _, s := range sources(t) {
		name, isTest := strings.CutSuffix(path.Base(s.name), "_test.go")
		if !isTest || name == "export" || s.file.Name.Name == "main" || strings.HasSuffix(s.file.Name.Name, "_test") || slices.Contains(strings.Split(s.dir, "/"), "internal") {
			continue
		}
		found[s.dir] = append(found[s.dir], name)
		if !slices.Contains(whiteBox[s.dir], name) {
			t.Errorf("%s is in package %s; a test of a public package is in %s_test", s.name, s.file.Name.Name, s.file.Name.Name)
		}
	}
	for dir, names := range whiteBox {
		for _, name := range names {
			if !slices.Contains(found[dir], name) {
				t.Errorf("%s/%s_test.go is not a white-box test any more: take it off the list", dir, name)
			}
		}
	}
}
