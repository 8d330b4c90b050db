package referencepolicy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/receipts"
)

// Log has the receipts of a tenant's policy of references.
const Log journal.OperationLog = stored.ReferenceLog

// CacheTTL is the maximum time until a process applies a policy that another process has set.
const CacheTTL = time.Second

// maxCached bounds the tenants whose policy is cached.
const maxCached = 4096

// Store keeps the policies of all tenants. It is safe for concurrent use. A nil Store has no policy of any tenant.
type Store struct {
	logs     *journal.OperationLogs
	receipts *journal.Receipts

	mu     sync.Mutex
	cached map[string]cachedPolicy // by tenant
}

// cachedPolicy is never changed, only replaced.
type cachedPolicy struct {
	matcher references.Matcher
	version int64
	newer   *references.FormatError // of a policy that can't be read
	readAt  time.Time               // when reading began
}

// New returns the policies of a journal.
func New(logs *journal.OperationLogs, trail *journal.Receipts) *Store {
	return &Store{logs: logs, receipts: trail, cached: map[string]cachedPolicy{}}
}

// Newest reads the current version of a tenant's policy.
func (s *Store) Newest(ctx context.Context, tenant string) (references.Version, error) {
	r, found, err := s.logs.Newest(ctx, tenant, Log)
	if err != nil || !found {
		return references.Version{Tenant: tenant, Policy: references.Policy{Rules: []references.Rule{}}}, err
	}
	return versionOf(r)
}

// versionOf reads a version from its receipt.
func versionOf(r receipts.Receipt) (references.Version, error) {
	p, err := r.Known()
	if err != nil {
		return references.Version{}, err
	}
	policy, newer, err := references.Decode(p.References)
	return references.Version{
		Tenant: r.Tenant, Policy: policy, Format: newer, Version: r.Seq, Changes: p.Changes, Actor: r.Actor, SelfDeclared: p.SelfDeclared, Reason: p.Reason, At: r.At, Receipt: r.ID(),
	}, err
}

// History returns at most limit versions in order, beginning after a version.
func (s *Store) History(ctx context.Context, tenant string, after int64, limit int) ([]references.Version, error) {
	id, found, err := s.logs.Log(ctx, tenant, Log)
	if err != nil || !found {
		return nil, err
	}
	trail, err := s.receipts.Trail(ctx, tenant, id, journal.TrailCursor{Case: id, Seq: after}, limit)
	if err != nil {
		return nil, err
	}
	out := make([]references.Version, len(trail))
	for i, r := range trail {
		if out[i], err = versionOf(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Set sets the policy of a tenant, with its receipt. To set the same policy again writes nothing. Of concurrent changes one is
// made; the others get a *references.VersionError, as does one that expects another version than the current one.
func (s *Store) Set(ctx context.Context, tenant, actor string, at time.Time, q references.Change) (references.Version, error) {
	if err := q.Policy.Validate(); err != nil {
		return references.Version{}, err
	}
	now, err := s.Newest(ctx, tenant)
	if err != nil {
		return references.Version{}, err
	}
	replaces := q.Force || q.IfVersion != nil
	switch {
	case q.IfVersion != nil && *q.IfVersion != now.Version:
		return references.Version{}, &references.VersionError{Expected: *q.IfVersion, Current: now}
	case now.Format > 0 && !replaces:
		return references.Version{}, &references.FormatError{Tenant: tenant, Version: now.Version, Format: now.Format}
	}
	changes := references.Changes(now.Policy, q.Policy)
	if now.Format > 0 {
		changes = "replaced a policy of a newer version of Recourse; " + changes
	} else if changes == "" && len(now.Policy.Rules) == len(q.Policy.Rules) {
		return now, nil
	}
	text, err := references.Encode(q.Policy)
	if err != nil {
		return references.Version{}, err
	}
	appended, err := s.logs.AppendAfter(ctx, tenant, Log, now.Version, receipts.Draft{Subtype: receipts.ReferencesChanged, Actor: actor, At: at, Payload: receipts.Payload{
		References: text, Changes: validate.Clean(changes, maxChanges), Reason: validate.Clean(q.Reason, 1024),
	}})
	s.forget(tenant)
	if err != nil {
		return references.Version{}, err
	}
	current, err := s.Newest(ctx, tenant)
	if err == nil && !appended {
		err = &references.VersionError{Expected: now.Version, Current: current}
	}
	return current, err
}

// maxChanges bounds the text of what a change has changed.
const maxChanges = 4 << 10

// policyOf returns the policy of a tenant, as it was CacheTTL ago at most. That of a nil Store takes nothing.
func (s *Store) policyOf(ctx context.Context, tenant string) (references.Matcher, error) {
	if s == nil {
		return references.Matcher{}, nil
	}
	s.mu.Lock()
	p, cached := s.cached[tenant]
	s.mu.Unlock()
	if !cached || time.Since(p.readAt) >= CacheTTL {
		var err error
		if p, err = s.read(ctx, tenant); err != nil {
			return references.Matcher{}, err
		}
	}
	if p.newer != nil {
		return references.Matcher{}, p.newer
	}
	return p.matcher, nil
}

func (s *Store) read(ctx context.Context, tenant string) (cachedPolicy, error) {
	p := cachedPolicy{readAt: time.Now()}
	now, err := s.Newest(ctx, tenant)
	if err != nil {
		return p, err
	}
	p.version = now.Version
	if now.Format > 0 {
		p.newer = &references.FormatError{Tenant: tenant, Version: now.Version, Format: now.Format}
	} else if p.matcher, err = now.Policy.Compile(); err != nil {
		return p, errors.Join(errors.New("postadjudication: the policy of references that is stored is not valid"), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.cached[tenant]; before.version > p.version {
		return before, nil // a read that began before another change
	}
	if len(s.cached) >= maxCached {
		clear(s.cached)
	}
	s.cached[tenant] = p
	return p, nil
}

// forget makes this process read the policy of a tenant when it needs it next.
func (s *Store) forget(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, cached := s.cached[tenant]
	if p.readAt = (time.Time{}); cached {
		s.cached[tenant] = p
	}
}
