package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// A file that can't be made is named as it was asked for.
func TestAFileThatCantBeMadeIsNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, testkit.Migrated(t))
	dir := t.TempDir()
	for _, name := range []string{filepath.Join(dir, "nowhere", "letters.csv"), dir} {
		refused := p.run("", "dlq", "export", name, "--format", "csv", "--tenant", "acme")
		if refused.wants(t, name, 1, "write "+name+":"); strings.Contains(refused.err, ".part") {
			t.Errorf("%s", refused.err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}
