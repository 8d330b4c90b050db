package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
)

const (
	// maxNulls is how many members that are null one refusal names.
	maxNulls = 20
	// maxPathNames is how many names the path of one has.
	maxPathNames = 16
)

// rejectNulls refuses members that are null, however deep. Read as absent, a filter, a limit,
// a version or an end for which a script had no value would make more of a request than
// was meant.
func rejectNulls(body []byte) error {
	var read any
	if err := json.Unmarshal(body, &read); err != nil {
		return newProblem(http.StatusBadRequest, "malformed", "the body can't be read")
	}
	n := nullFinder{paths: map[string]bool{}}
	n.find(read)
	if len(n.paths) == 0 {
		return nil
	}
	p := newProblem(http.StatusUnprocessableEntity, "invalid", "the request says null where it is to say something")
	for _, field := range slices.Sorted(maps.Keys(n.paths)) {
		p.withField(redact.Text(field), "is null; leave it out")
	}
	return p
}

// nullFinder are the members of a body that are null.
type nullFinder struct {
	paths map[string]bool // by their paths
	names []string        // the names of the members around the value that is read
}

// find adds the members below a value, in the order of their names, up to maxNulls.
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

// currentPath is that of the member that is read.
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

// checkQuery refuses a query that could be understood in two ways: one that is broken,
// a parameter that is given twice, and one that is given and empty. huma refuses what
// is unknown.
func checkQuery(r *http.Request) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return newProblem(http.StatusBadRequest, "malformed", "the query can't be read")
	}
	p := newProblem(http.StatusUnprocessableEntity, "invalid", "the query can't be taken as it is")
	for name, given := range values {
		switch {
		case len(given) > 1:
			p.withField(name, "is given twice")
		case given[0] == "":
			p.withField(name, "is empty: leave it out")
		}
	}
	if len(p.Errors) == 0 {
		return nil
	}
	slices.SortFunc(p.Errors, func(a, b FieldProblem) int { return strings.Compare(a.Field, b.Field) })
	return p
}

// memberName is the name of a member in JSON.
func memberName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
