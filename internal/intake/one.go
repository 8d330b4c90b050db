package intake

import (
	"errors"

	"github.com/recourse-dev/recourse/postadjudication"
)

// ParseObject reads one object of the format for a tenant, who need not stand in it, and must
// not be another. The adjudication is readable and not malformed exactly when there are no
// problems; their Line is 0. A secret is none of them: whoever submits the adjudication is told
// of it, unless it was accepted before.
func ParseObject(text []byte, tenant string) (postadjudication.Adjudication, []Problem) {
	p := parser{}
	a := p.adjudication(text)
	switch a.Tenant {
	case tenant:
	case "":
		a.Tenant = tenant
	default:
		p.addProblem("tenant", "is not the one that this is asked for; leave it out")
	}
	if len(p.problems) == 0 {
		if malformed, unsafe := a.Check(); malformed != nil {
			p.refused(errors.Join(malformed, unsafe))
		}
	}
	return a, p.problems
}
