package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/recourse-dev/recourse/internal/cpulimit"
)

// ErrTooManyConditions means that a search, an export or a plan with a condition was not
// begun since as many of the tenant, or of the process, are being worked on. It may be asked
// again some seconds later.
var ErrTooManyConditions = fmt.Errorf("postadjudication: too many searches with a condition at once: %d of a tenant and %d of a process are worked on", maxConditionsPerTenant, maxConditionsPerProcess)

// How many searches, exports and plans with a condition are worked on at once. Each keeps
// one page of letters and one program in memory.
const (
	maxConditionsPerTenant  = 2
	maxConditionsPerProcess = 16
)

// exprLimiter bounds the work that conditions make in a process. All of them are compiled and
// evaluated on half of the processors, so that the other half is left to settlements.
type exprLimiter struct {
	cpu *cpulimit.Limit

	mu       sync.Mutex
	active   int
	byTenant map[string]int
}

func newExprLimiter() *exprLimiter {
	return &exprLimiter{cpu: cpulimit.OfProcess(), byTenant: map[string]int{}}
}

// acquire takes a place of a tenant until release is called, once. It returns
// ErrTooManyConditions when there is none.
func (l *exprLimiter) acquire(tenant string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.active == maxConditionsPerProcess || l.byTenant[tenant] == maxConditionsPerTenant {
		return nil, ErrTooManyConditions
	}
	l.active++
	l.byTenant[tenant]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.active--
		if l.byTenant[tenant]--; l.byTenant[tenant] == 0 {
			delete(l.byTenant, tenant)
		}
	}, nil
}

// limitedCondition is a condition that holds a place in the limiter.
type limitedCondition struct {
	*LetterExpr
	limiter *exprLimiter
	tenant  string
	release func()
}

// condition takes a place, then compiles the condition. It returns nil for no condition.
// The caller must call done.
func (l *exprLimiter) condition(ctx context.Context, tenant, where string) (*limitedCondition, error) {
	if where == "" {
		return nil, nil
	}
	release, err := l.acquire(tenant)
	if err != nil {
		return nil, err
	}
	var e *LetterExpr
	var refused error
	waited := l.cpu.Do(ctx, tenant, func() { e, refused = ParseLetterExpr(where) })
	if err := errors.Join(waited, refused); err != nil {
		release()
		return nil, err
	}
	return &limitedCondition{e, l, tenant, release}, nil
}

// CheckCondition returns the error that a search, an export or a plan of a tenant with the
// condition would be refused with: a *FieldError of where, or ErrTooManyConditions.
func (s *Service) CheckCondition(ctx context.Context, tenant, where string) error {
	c, err := s.conditionLimiter.condition(ctx, tenant, where)
	c.done()
	return err
}

// Matches waits for a processor to evaluate.
func (c *limitedCondition) Matches(ctx context.Context, letter Letter) (matches bool, err error) {
	if waitErr := c.limiter.cpu.Do(ctx, c.tenant, func() { matches, err = c.LetterExpr.Matches(ctx, letter) }); waitErr != nil {
		return false, waitErr
	}
	return matches, err
}

// done gives the place back. It does nothing for no condition.
func (c *limitedCondition) done() {
	if c != nil {
		c.release()
	}
}
