package casework

import (
	"context"

	"github.com/recourse-dev/recourse/receipts"
)

// Provenance is what the receipts of a plan's items state of the people behind it.
type Provenance struct {
	PlannedBy, Incident string
	People              int // 1: no second person was required
	Declared            bool
	LookupURL           string // of the escrow service that a self-declared actor named
}

// Stamp sets the people in the payload of a receipt.
func (m Provenance) Stamp(p *receipts.Payload) {
	p.PlannedBy, p.BreakGlass, p.People, p.SelfDeclared, p.LookupURL = m.PlannedBy, m.Incident, m.People, m.Declared, m.LookupURL
}

// RequiredPeople returns how many people a caller needs to state or free money of a
// tenant.
func (c *Cases) RequiredPeople(ctx context.Context, tenant string) (int, error) {
	if CallerOf(ctx).NoKeys {
		return 1, nil
	}
	p, err := c.Journal.People.Get(ctx, tenant)
	return p.People, err
}
