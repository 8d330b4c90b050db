package receiptstest_test

import (
	"testing"

	"github.com/recourse-dev/recourse/receipts/receiptstest"
)

func TestMemoryKeepsWhatALogPromises(t *testing.T) {
	t.Parallel()
	receiptstest.TestLog(t, func(*testing.T) receiptstest.Log { return receiptstest.NewMemory() })
}

func TestMemoryKeepsItWhenShared(t *testing.T) {
	t.Parallel()
	shared := receiptstest.NewMemory()
	receiptstest.TestLog(t, func(*testing.T) receiptstest.Log { return shared })
}
