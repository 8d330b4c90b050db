// Package build reports what this program was built from, as recorded by the Go toolchain.
// It imports the standard library only.
package build

import (
	"runtime"
	"runtime/debug"
)

// Info is what the program was built from. A value that was not recorded, as with go test, is
// "unknown".
type Info struct {
	Version  string `json:"version"`  // version of the module
	Revision string `json:"revision"` // revision of the sources; ends in +dirty if they were modified
	Go       string `json:"go"`
}

const unknown = "unknown"

// Read returns the recorded Info.
func Read() Info {
	recorded, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: unknown, Revision: unknown, Go: runtime.Version()}
	}
	return infoOf(recorded)
}

func infoOf(recorded *debug.BuildInfo) Info {
	out := Info{Version: recorded.Main.Version, Revision: unknown, Go: recorded.GoVersion}
	if out.Version == "" || out.Version == "(devel)" {
		out.Version = unknown
	}
	changed := false
	for _, s := range recorded.Settings {
		switch s.Key {
		case "vcs.revision":
			out.Revision = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if changed && out.Revision != unknown {
		out.Revision += "+dirty"
	}
	return out
}

// String returns the Info in one line.
func (i Info) String() string {
	return "recourse " + i.Version + ", revision " + i.Revision + ", " + i.Go
}
