package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
)

const (
	// mostNulls is how many members that are null one refusal names.
	mostNulls = 20
	// mostNames is how many names the path of one has.
	mostNames = 16
)

// noNull refuses members that are null, however deep. Read as absent, a filter, a limit,
// a version or an end for which a script had no value would make more of a request than
// was meant.
func noNull(body []byte) error {
	var read any
	if err := json.Unmarshal(body, &read); err != nil {
		return newProblem(http.StatusBadRequest, "malformed", "the body can't be read")
	}
	n := nulls{at: map[string]bool{}}
	n.find(read)
	if len(n.at) == 0 {
		return nil
	}
	p := newProblem(http.StatusUnprocessableEntity, "invalid", "the request says null where it is to say something")
	for _, field := range slices.Sorted(maps.Keys(n.at)) {
		p.with(redact.Text(field), "is null; leave it out")
	}
	return p
}

// nulls are the members of a body that are null.
type nulls struct {
	at   map[string]bool // by their paths
	open []string        // the names of the members around the value that is read
}

// find adds the members below a value, in the order of their names, up to mostNulls.
func (n *nulls) find(read any) {
	if len(n.at) == mostNulls {
		return
	}
	switch v := read.(type) {
	case nil:
		n.at[n.path()] = true
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			n.open = append(n.open, name)
			n.find(v[name])
			n.open = n.open[:len(n.open)-1]
		}
	case []any:
		for _, one := range v {
			n.find(one)
		}
	}
}

// path is that of the member that is read.
func (n *nulls) path() string {
	names := make([]string, 0, mostNames+1)
	for _, name := range n.open[:min(len(n.open), mostNames)] {
		names = append(names, strictjson.Name(name))
	}
	if deeper := len(n.open) - mostNames; deeper > 0 {
		names = append(names, fmt.Sprintf("(%d names deeper)", deeper))
	}
	return strings.Join(names, ".")
}
