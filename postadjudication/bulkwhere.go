package postadjudication

import (
	"context"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// scanLimit bounds what is looked at for the condition of a plan.
type scanLimit struct {
	letters int64
	time    time.Duration
}

// Whoever waits for a plan over HTTP has half a minute.
const (
	bulkScanLetters   = 1_000_000
	bulkScanTimeLimit = 20 * time.Second
)

// planCondition asks the condition of a plan of letter after letter.
type planCondition struct {
	service            *Service
	where              *limitedCondition
	limit              scanLimit
	deadline           time.Time // of the machine's clock, when the first letter was looked at
	scanned, undecided int64
}

// newPlanCondition is nil for a plan without a condition. The caller must call done.
func (s *Service) newPlanCondition(ctx context.Context, tenant, where string, limit scanLimit) (*planCondition, error) {
	if where == "" {
		return nil, nil
	}
	condition, err := s.conditionLimiter.condition(ctx, tenant, where)
	return &planCondition{service: s, where: condition, limit: limit}, err
}

// done gives the place of the condition back.
func (c *planCondition) done() {
	if c != nil {
		c.where.done()
	}
}

// nothingSelected is the error of a plan that would be empty.
func (c *planCondition) nothingSelected() error {
	if c == nil {
		return &NothingSelectedError{}
	}
	return &NothingSelectedError{Scanned: c.scanned, Undecided: c.undecided}
}

// applyTo lets a plan take only letters that meet the condition, and keep how many were
// looked at.
func (c *planCondition) applyTo(scope postgres.BulkScope) postgres.BulkScope {
	if c == nil {
		return scope
	}
	scope.Matches = c.matches
	scope.ExtraCounts = func() []postgres.BulkCount {
		return []postgres.BulkCount{{Label: postgres.BulkScanned, Items: c.scanned}, {Label: postgres.BulkUndecided, Items: c.undecided}}
	}
	return scope
}

// matches refuses to go on when the bound is reached: a plan of the part that was looked at
// would pass for one of all.
func (c *planCondition) matches(ctx context.Context, found postgres.FoundLetter) (bool, error) {
	now := time.Now()
	if c.scanned == 0 {
		c.deadline = now.Add(c.limit.time)
	}
	if c.scanned == c.limit.letters || now.After(c.deadline) {
		return false, conditionError(fmt.Sprintf("could not be told of all letters that the filter selects: %d were looked at, and others follow. Narrow the filter, or give a limit", c.scanned))
	}
	c.scanned++
	matched, err := c.where.Matches(ctx, c.service.letterOf(found))
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		c.undecided++
		return false, nil
	}
	return matched, nil
}
