package casework

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// fixedEscrow is an escrow service of which only the stated properties matter.
type fixedEscrow struct {
	keyLifetime, inFlight time.Duration
	at                    string
}

func (e fixedEscrow) Execute(context.Context, escrow.Call) escrow.Answer { return escrow.Answer{} }
func (e fixedEscrow) Lookup(context.Context, escrow.Call) escrow.Answer  { return escrow.Answer{} }
func (e fixedEscrow) KeyLifetime() time.Duration                         { return e.keyLifetime }
func (e fixedEscrow) InFlight() time.Duration                            { return e.inFlight }
func (e fixedEscrow) Address() string                                    { return e.at }

// unaddressed hides the address of an escrow service.
type unaddressed struct{ escrow.Executor }

var _ escrow.Addressed = fixedEscrow{}
