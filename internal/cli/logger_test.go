package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/internal/door"
)

func TestRepeatedLinesAreSampledAndErrorsNever(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := newLogger(&out, zapcore.InfoLevel)
	for range 500 {
		log.Debug("filtered")
		log.Warn("message of the Redis client", zap.String("text", "refused"))
		log.Error("a breach")
		log.Named(door.AccessLogger).Info("request")
	}
	log.Info("another")
	counts := map[string]int{}
	for line := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
		var l struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		counts[l.Level+" "+l.Msg]++
	}
	if counts["error a breach"] != 500 || counts["info request"] != 500 || counts["info another"] != 1 || counts["debug filtered"] != 0 {
		t.Errorf("%v", counts)
	}
	if n := counts["warn message of the Redis client"]; n < sampledFirst || n > 5*sampledFirst {
		t.Errorf("%d of 500 lines that say the same", n)
	}
}
