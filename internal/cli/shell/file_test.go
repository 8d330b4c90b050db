package shell_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/clitest"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// The error for a file that cannot be created has the name in the argument.
func TestAFileThatCantBeMadeIsNamed(t *testing.T) {
	t.Parallel()
	p := clitest.New(t, testkit.Migrated(t))
	dir := t.TempDir()
	for _, name := range []string{filepath.Join(dir, "nowhere", "letters.csv"), dir} {
		refused := p.Run("", "dlq", "export", name, "--format", "csv", "--tenant", "acme")
		if refused.Check(t, name, 1, "write "+name+":"); strings.Contains(refused.Err, ".part") {
			t.Errorf("%s", refused.Err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}
