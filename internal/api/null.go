package api

import (
	"encoding/json"
	"net/http"
	"slices"
)

// noNull refuses members that are null, however deep. Read as absent, a filter, a limit,
// a version or an end for which a script had no value would make more of a request than
// was meant.
func noNull(body []byte) error {
	var read any
	if err := json.Unmarshal(body, &read); err != nil {
		return newProblem(http.StatusBadRequest, "malformed", "the body can't be read")
	}
	at := nulls("", read)
	if len(at) == 0 {
		return nil
	}
	slices.Sort(at)
	at = slices.Compact(at)
	p := newProblem(http.StatusUnprocessableEntity, "invalid", "the request says null where it is to say something")
	for _, field := range at {
		p.with(field, "is null; leave it out")
	}
	return p
}

// nulls are the paths of the members that are null.
func nulls(path string, read any) (at []string) {
	switch v := read.(type) {
	case nil:
		at = []string{path}
	case map[string]any:
		for name, member := range v {
			if path != "" {
				name = path + "." + name
			}
			at = append(at, nulls(name, member)...)
		}
	case []any:
		for _, one := range v {
			at = append(at, nulls(path, one)...)
		}
	}
	return at
}
