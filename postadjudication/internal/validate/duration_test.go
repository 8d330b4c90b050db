package validate_test

import (
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
)

func TestAnAgeIsReadAsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"P180D": 180 * validate.Day, "PT36H": 36 * time.Hour, "P2W": 14 * validate.Day, "P1DT1H1M1S": validate.Day + time.Hour + time.Minute + time.Second,
		"P1Y": 365 * validate.Day, "P12M": 365 * validate.Day, "P200Y": 200 * 365 * validate.Day,
	} {
		if got, err := validate.ParseISODuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "180", "180D", "P", "PT", "P0D", "-P1D", "P-1D", "P1DT", "PP1D", "P1D2D", "P1.5D", "PT1D", "P1H", "p1d", " P1D", "P1D ", "P201Y", "P99999999999999999D", "P½D"} {
		if got, err := validate.ParseISODuration(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
