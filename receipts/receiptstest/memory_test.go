package receiptstest

import "testing"

func TestMemoryKeepsWhatALogPromises(t *testing.T) {
	t.Parallel()
	TestLog(t, func(*testing.T) Log { return NewMemory() })
}

func TestMemoryKeepsItWhenShared(t *testing.T) {
	t.Parallel()
	shared := NewMemory()
	TestLog(t, func(*testing.T) Log { return shared })
}
