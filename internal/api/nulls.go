package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
)

const (
	// maxNulls is how many null members one refusal names.
	maxNulls = 20
	// maxPathNames is how many names the path of a member has at most.
	maxPathNames = 16
)

// rejectNulls refuses null members at any depth. If null were read as absent, a script that
// has no value for a filter, a limit, a version or an expiry would send a wider request than
// was meant.
func rejectNulls(body []byte) error {
	var read any
	if err := json.Unmarshal(body, &read); err != nil {
		return door.NewRefusal(http.StatusBadRequest, "malformed", "the body can't be read")
	}
	n := nullFinder{paths: map[string]bool{}}
	n.find(read)
	if len(n.paths) == 0 {
		return nil
	}
	refused := door.NewRefusal(http.StatusUnprocessableEntity, "invalid", "the request has members that are null")
	for _, field := range slices.Sorted(maps.Keys(n.paths)) {
		refused.WithField(redact.Text(field), "is null; leave it out")
	}
	return refused
}

// nullFinder collects the members of a body that are null.
type nullFinder struct {
	paths map[string]bool // set of paths
	names []string        // path of the current value
}

// find adds the null members below a value, in order of their names, up to maxNulls.
func (n *nullFinder) find(read any) {
	if len(n.paths) == maxNulls {
		return
	}
	switch v := read.(type) {
	case nil:
		n.paths[n.currentPath()] = true
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			n.names = append(n.names, name)
			n.find(v[name])
			n.names = n.names[:len(n.names)-1]
		}
	case []any:
		for _, one := range v {
			n.find(one)
		}
	}
}

// currentPath returns the path of the current value.
func (n *nullFinder) currentPath() string {
	names := make([]string, 0, maxPathNames+1)
	for _, name := range n.names[:min(len(n.names), maxPathNames)] {
		names = append(names, strictjson.Name(name))
	}
	if deeper := len(n.names) - maxPathNames; deeper > 0 {
		names = append(names, fmt.Sprintf("(%d names deeper)", deeper))
	}
	return strings.Join(names, ".")
}
