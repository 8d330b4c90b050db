package postadjudication

import (
	"context"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/internal/postgres"
)

// bulkReach bounds what is looked at for the condition of a plan.
type bulkReach struct {
	letters int64
	time    time.Duration
}

// Whoever waits for a plan over HTTP has half a minute.
const (
	bulkScanMost = 1_000_000
	bulkScanTime = 20 * time.Second
)

// bulkCondition asks the condition of a plan of letter after letter.
type bulkCondition struct {
	service            *Service
	where              *limitedCondition
	most               bulkReach
	ends               time.Time // of the machine's clock, when the first letter was looked at
	scanned, undecided int64
}

// bulkCondition is nil for a plan without a condition. The caller must call done.
func (s *Service) bulkCondition(ctx context.Context, tenant, where string, most bulkReach) (*bulkCondition, error) {
	if where == "" {
		return nil, nil
	}
	condition, err := s.exprs.condition(ctx, tenant, where)
	return &bulkCondition{service: s, where: condition, most: most}, err
}

// done gives the place of the condition back.
func (c *bulkCondition) done() {
	if c != nil {
		c.where.done()
	}
}

// nothingSelected is the error of a plan that would be empty.
func (c *bulkCondition) nothingSelected() error {
	if c == nil {
		return &NothingSelectedError{}
	}
	return &NothingSelectedError{Scanned: c.scanned, Undecided: c.undecided}
}

// of lets a plan take only letters that meet the condition, and keep how many were
// looked at.
func (c *bulkCondition) of(scope postgres.BulkScope) postgres.BulkScope {
	if c == nil {
		return scope
	}
	scope.Meets = c.meets
	scope.Beside = func() []postgres.BulkCount {
		return []postgres.BulkCount{{Word: postgres.BulkScanned, Items: c.scanned}, {Word: postgres.BulkUndecided, Items: c.undecided}}
	}
	return scope
}

// meets refuses to go on when the bound is reached: a plan of the part that was looked at
// would pass for one of all.
func (c *bulkCondition) meets(ctx context.Context, found postgres.FoundLetter) (bool, error) {
	now := time.Now()
	if c.scanned == 0 {
		c.ends = now.Add(c.most.time)
	}
	if c.scanned == c.most.letters || now.After(c.ends) {
		return false, badExpr(fmt.Sprintf("could not be told of all letters that the filter selects: %d were looked at, and others follow. Narrow the filter, or give a limit", c.scanned))
	}
	c.scanned++
	meets, err := c.where.Meets(ctx, c.service.letterOf(found))
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		c.undecided++
		return false, nil
	}
	return meets, nil
}
