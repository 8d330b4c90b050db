package shell_test

import (
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/shell"
)

func TestSpansAreShownWithoutTrailingZeros(t *testing.T) {
	t.Parallel()
	for span, want := range map[string]string{"1h0m0s": "1h", "48h1m33s": "48h1m33s", "5m0s": "5m", "10s": "10s", "20m0s": "20m", "10h10m0s": "10h10m", "0s": "0s", "30d": "30d", "1h0m5s": "1h0m5s"} {
		if got := shell.Span(span); got != want {
			t.Errorf("%s is formatted as %s, want %s", span, got, want)
		}
	}
}
