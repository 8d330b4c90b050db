package intake

import (
	"github.com/recourse-dev/recourse/postadjudication"
)

// One reads one object of the format for a tenant, who need not stand in it, and must
// not be another. The adjudication is readable and valid exactly when there are no
// problems; their Line is 0.
func One(text []byte, tenant string) (postadjudication.Adjudication, []Problem) {
	p := parser{}
	a := p.adjudication(text)
	switch a.Tenant {
	case tenant:
	case "":
		a.Tenant = tenant
	default:
		p.wrong("tenant", "is not the one that this is asked for; leave it out")
	}
	if len(p.problems) == 0 {
		p.check(a)
	}
	return a, p.problems
}

// Strict checks that text is one JSON object, and what encoding/json would let pass:
// bytes other than UTF-8, and a member given twice at any depth. It is nil, or what is
// wrong.
func Strict(text []byte) *Problem {
	err := whole(text)
	if err == nil {
		return nil
	}
	return &Problem{Field: fieldOf(err), Problem: problemOf(err)}
}
