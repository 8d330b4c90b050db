package bulk_test

import (
	"os"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// acting is for whom and in whose name a test acts.
type acting struct{ tenant, actor string }

const day = 24 * time.Hour
