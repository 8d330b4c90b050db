package build

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestBuildInfoIsAsRecorded(t *testing.T) {
	t.Parallel()
	for want, recorded := range map[Info]*debug.BuildInfo{
		{"v1.2.3", "abc", "go1.26.8"}: {
			GoVersion: "go1.26.8", Main: debug.Module{Version: "v1.2.3"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}},
		},
		{"unknown", "abc+dirty", "go1.26.8"}: {
			GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"},
			Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "abc"}},
		},
		{"unknown", "unknown", "go1.26.8"}: {GoVersion: "go1.26.8", Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}},
	} {
		if got := infoOf(recorded); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if text := Read().String(); !strings.HasPrefix(text, "recourse ") || !strings.Contains(text, "go1.") {
		t.Error(text)
	}
}
