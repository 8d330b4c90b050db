package retention

import (
	"context"
	"errors"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// What black-box tests need of this package that its users do not.

const TenantFailureLimit = tenantFailureLimit

// PruneUnlocked is a Prune beside those of other processes.
func (r Schedule) PruneUnlocked(ctx context.Context) (Report, error) {
	round := &pruneRound{Keeper: r.s}
	var errs []error
	for _, rule := range r.s.rules.all() {
		errs = append(errs, round.applyRule(ctx, rule))
	}
	return round.report, errors.Join(append(errs, round.errs...)...)
}

// Journal returns the journal of the process.
func (r Schedule) Journal() *journal.Journal { return r.s.journal }
