package escrow_test

import (
	"os"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
