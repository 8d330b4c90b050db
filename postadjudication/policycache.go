package postadjudication

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// PolicyCacheTTL is the maximum time until new runs of a process have a policy that another
// process set. In the process that set it, new runs have it at once.
const PolicyCacheTTL = time.Second

// policyCache caches the policies that were set. With it a submission reads no policy, except
// for one reader a second.
type policyCache struct {
	journal *journal.Journal
	log     *zap.Logger
	cached  atomic.Pointer[cachedPolicies]
	readMu  sync.Mutex // held while reading or storing
}

type policyOwner struct{ tenant, family string }

// cachedPolicies is never changed, only replaced.
type cachedPolicies struct {
	set    map[policyOwner]journal.Policy
	readAt time.Time // when reading began
}

// load reads the policies for the first time: without them no submission could be given
// its policy.
func (c *policyCache) load(ctx context.Context) error {
	c.cached.Store(&cachedPolicies{})
	c.readMu.Lock()
	defer c.readMu.Unlock()
	return c.read(ctx)
}

// policyFor returns the policy of a new run: the one set for the tenant's family, else configured.
// If the journal can't be read, the last known policies stay in force: a submission is not
// refused for that.
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
		c.log.Warn("can't read the policies, new runs have the last known ones", zap.Error(err))
		c.cached.Store(&cachedPolicies{cached.set, time.Now()})
	}
	return c.cached.Load()
}

// read reads all policies; there is one per family that was ever set. The caller holds the
// lock.
func (c *policyCache) read(ctx context.Context) error {
	began := time.Now()
	found, err := c.journal.Policies.List(ctx)
	if err != nil {
		return err
	}
	next := &cachedPolicies{make(map[policyOwner]journal.Policy, len(found)), began}
	for _, p := range found {
		next.set[policyOwner{p.Tenant, p.Family}] = p
	}
	c.cached.Store(next)
	return nil
}

// store caches a policy that this process has set.
func (c *policyCache) store(p journal.Policy) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	cached, owner := c.cached.Load(), policyOwner{p.Tenant, p.Family}
	if cached.set[owner].Version >= p.Version {
		return
	}
	next := &cachedPolicies{maps.Clone(cached.set), cached.readAt}
	if next.set == nil {
		next.set = map[policyOwner]journal.Policy{}
	}
	next.set[owner] = p
	c.cached.Store(next)
}
