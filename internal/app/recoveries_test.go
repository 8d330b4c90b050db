package app

import (
	"io"
	"testing"

	"github.com/spf13/pflag"
)

func TestRecoveriesAreANumberOrUnlimited(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]struct {
		value Recoveries
		told  string
	}{"": {0, "5"}, "--max-recoveries=1": {1, "1"}, "--max-recoveries=12": {12, "12"}, "--max-recoveries=unlimited": {-1, "unlimited"}} {
		var o Options
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Bind(f)
		var args []string
		if flag != "" {
			args = []string{flag}
		}
		if err := f.Parse(args); err != nil || o.MaxRecoveries != want.value || o.MaxRecoveries.String() != want.told {
			t.Errorf("%q: %d, told as %s, %v", flag, o.MaxRecoveries, o.MaxRecoveries.String(), err)
		}
	}
	for _, bad := range []string{"0", "-1", "none", "", "5.0", "1000001"} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.SetOutput(io.Discard)
		new(Options).Bind(f)
		if err := f.Parse([]string{"--max-recoveries=" + bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
