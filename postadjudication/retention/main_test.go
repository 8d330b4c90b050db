package retention_test

import (
	"os"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

const day = 24 * time.Hour
