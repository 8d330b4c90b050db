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

// PolicyCacheTTL is how long it takes at most until a policy that another process
// set is that of new runs here. In the process that sets it, it is at once.
const PolicyCacheTTL = time.Second

// policyCache is what this process knows of the policies that were set. A new run
// asks it, so that tuning costs a submission nothing but one reader's wait a second.
type policyCache struct {
	journal *postgres.Journal
	log     *zap.Logger
	cached  atomic.Pointer[cachedPolicies]
	readMu  sync.Mutex // held by who reads or sets
}

type policyOwner struct{ tenant, family string }

// cachedPolicies is never changed, only replaced.
type cachedPolicies struct {
	set    map[policyOwner]postgres.Policy
	readAt time.Time // when they began to be read
}

// load reads what was set for the first time: without it no submission could be given
// its policy.
func (c *policyCache) load(ctx context.Context) error {
	c.cached.Store(&cachedPolicies{})
	c.readMu.Lock()
	defer c.readMu.Unlock()
	return c.read(ctx)
}

// policyFor gives the policy of a new run: what was set for the tenant's family, or else
// what is configured. When the journal can't be read, what is known goes on to hold:
// a submission is not refused for that.
func (c *policyCache) policyFor(ctx context.Context, tenant, family string, configured retrypolicy.Policy) retrypolicy.Policy {
	cached := c.cached.Load()
	if time.Since(cached.readAt) >= PolicyCacheTTL {
		cached = c.refresh(ctx)
	}
	if p, ok := cached.set[policyOwner{tenant, family}]; ok && !p.AsConfigured {
		return p.Policy
	}
	return configured
}

func (c *policyCache) refresh(ctx context.Context) *cachedPolicies {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	cached := c.cached.Load()
	if time.Since(cached.readAt) < PolicyCacheTTL {
		return cached // another submission has just read them
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), PolicyCacheTTL)
	defer cancel()
	if err := c.read(ctx); err != nil {
		c.log.Warn("the policies can't be read, new runs have those that are known", zap.Error(err))
		c.cached.Store(&cachedPolicies{cached.set, time.Now()})
	}
	return c.cached.Load()
}

// read reads them all; there is one for each family that somebody tuned. The caller
// holds the lock.
func (c *policyCache) read(ctx context.Context) error {
	began := time.Now()
	found, err := c.journal.Policies(ctx)
	if err != nil {
		return err
	}
	next := &cachedPolicies{make(map[policyOwner]postgres.Policy, len(found)), began}
	for _, p := range found {
		next.set[policyOwner{p.Tenant, p.Family}] = p
	}
	c.cached.Store(next)
	return nil
}

// store makes known what this process has set.
func (c *policyCache) store(p postgres.Policy) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	cached, owner := c.cached.Load(), policyOwner{p.Tenant, p.Family}
	if cached.set[owner].Version >= p.Version {
		return
	}
	next := &cachedPolicies{maps.Clone(cached.set), cached.readAt}
	if next.set == nil {
		next.set = map[policyOwner]postgres.Policy{}
	}
	next.set[owner] = p
	c.cached.Store(next)
}
