package postadjudication

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// PolicyFreshFor is how long it takes at most until a policy that another process
// set is that of new runs here. In the process that sets it, it is at once.
const PolicyFreshFor = time.Second

// policyCache is what this process knows of the policies that were set. A new run
// asks it, so that tuning costs a submission nothing but one reader's wait a second.
type policyCache struct {
	journal *postgres.Journal
	log     *zap.Logger
	known   atomic.Pointer[knownPolicies]
	reading sync.Mutex // held by who reads or sets
}

type policyOwner struct{ tenant, family string }

// knownPolicies is never changed, only replaced.
type knownPolicies struct {
	set   map[policyOwner]postgres.Policy
	asked time.Time // when they began to be read
}

// open reads what was set for the first time: without it no submission could be given
// its policy.
func (c *policyCache) open(ctx context.Context) error {
	c.known.Store(&knownPolicies{})
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.read(ctx)
}

// of gives the policy of a new run: what was set for the tenant's family, or else
// what is configured. When the journal can't be read, what is known goes on to hold:
// a submission is not refused for that.
func (c *policyCache) of(ctx context.Context, tenant, family string, configured retrypolicy.Policy) retrypolicy.Policy {
	known := c.known.Load()
	if time.Since(known.asked) >= PolicyFreshFor {
		known = c.refresh(ctx)
	}
	if p, ok := known.set[policyOwner{tenant, family}]; ok && !p.AsConfigured {
		return p.Policy
	}
	return configured
}

func (c *policyCache) refresh(ctx context.Context) *knownPolicies {
	c.reading.Lock()
	defer c.reading.Unlock()
	known := c.known.Load()
	if time.Since(known.asked) < PolicyFreshFor {
		return known // another submission has just read them
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), PolicyFreshFor)
	defer cancel()
	if err := c.read(ctx); err != nil {
		c.log.Warn("the policies can't be read, new runs have those that are known", zap.Error(err))
		c.known.Store(&knownPolicies{known.set, time.Now()})
	}
	return c.known.Load()
}

// read reads them all; there is one for each family that somebody tuned. The caller
// holds the lock.
func (c *policyCache) read(ctx context.Context) error {
	began := time.Now()
	found, err := c.journal.Policies(ctx)
	if err != nil {
		return err
	}
	next := &knownPolicies{make(map[policyOwner]postgres.Policy, len(found)), began}
	for _, p := range found {
		next.set[policyOwner{p.Tenant, p.Family}] = p
	}
	c.known.Store(next)
	return nil
}

// took makes known what this process has set.
func (c *policyCache) took(p postgres.Policy) {
	c.reading.Lock()
	defer c.reading.Unlock()
	known, owner := c.known.Load(), policyOwner{p.Tenant, p.Family}
	if known.set[owner].Version >= p.Version {
		return
	}
	next := &knownPolicies{maps.Clone(known.set), known.asked}
	if next.set == nil {
		next.set = map[policyOwner]postgres.Policy{}
	}
	next.set[owner] = p
	c.known.Store(next)
}
