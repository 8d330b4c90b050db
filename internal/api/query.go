package api

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

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
