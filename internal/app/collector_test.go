package app

import (
	gauges "runtime/metrics"
	"testing"
)

// percent is the collector's as it is.
func percent(t *testing.T) uint64 {
	t.Helper()
	s := []gauges.Sample{{Name: "/gc/gogc:percent"}}
	gauges.Read(s)
	return s[0].Value.Uint64()
}

// The percentage belongs to the whole process, so this test runs beside no other.
func TestTheCollectorIsGivenRoomUnlessTheEnvironmentSays(t *testing.T) {
	before := percent(t)
	for value, want := range map[string]uint64{"": roomy, "50": before} {
		m := &Main{Options: Options{Private: true, Embedded: true, TimeLimit: 1}}
		if err := m.Parse(func(name string) string {
			if name == collectorVariable {
				return value
			}
			return ""
		}); err != nil {
			t.Fatal(err)
		}
		restore := m.makeRoom()
		if got := percent(t); got != want {
			t.Errorf("%s=%q: %d, want %d", collectorVariable, value, got, want)
		}
		restore()
		if got := percent(t); got != before {
			t.Errorf("%d afterwards, %d before", got, before)
		}
	}
}
