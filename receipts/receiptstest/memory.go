package receiptstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// Refusals of a Memory.
var (
	ErrNoTenant    = errors.New("receiptstest: a tenant must be named")
	ErrOtherTenant = errors.New("receiptstest: the case is another tenant's")
	ErrAppendOnly  = errors.New("receiptstest: receipts are never updated or deleted")
)

// Memory is a Log in memory that is harder to use than a database: one append in ten loses its head and chains
// again, other goroutines run between reading the head and storing, and times come back in a far zone.
type Memory struct {
	mu    sync.Mutex
	rng   *rand.Rand
	cases map[receipts.CaseID]*memoryCase
}

type memoryCase struct {
	tenant string
	head   receipts.Head
	rows   []receipts.Receipt
}

// NewMemory returns an empty log. Its conflicts are the same in every run that appends in the same order.
func NewMemory() *Memory {
	return &Memory{rng: rand.New(rand.NewPCG(1, 2)), cases: make(map[receipts.CaseID]*memoryCase)}
}

// Append implements Log.
func (m *Memory) Append(ctx context.Context, c receipts.CaseID, tenant string, drafts ...receipts.Draft) error {
	if tenant == "" {
		return ErrNoTenant
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		head := m.head(c)
		rows, next, err := receipts.Chain(c, tenant, head, drafts...)
		if err != nil {
			return err
		}
		runtime.Gosched()
		if stored, err := m.store(c, tenant, head, next, rows); stored || err != nil {
			return err
		}
	}
}

func (m *Memory) head(c receipts.CaseID) receipts.Head {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.cases[c]; k != nil {
		return k.head
	}
	return receipts.Genesis(c)
}

// store is a compare and set on the head: false means that another append, or a simulated conflict, came first.
func (m *Memory) store(c receipts.CaseID, tenant string, seen, next receipts.Head, rows []receipts.Receipt) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.cases[c]
	if k == nil {
		k = &memoryCase{tenant: tenant, head: receipts.Genesis(c)}
	}
	if k.tenant != tenant {
		return false, ErrOtherTenant
	}
	if k.head != seen || m.rng.IntN(10) == 0 {
		return false, nil
	}
	if len(rows) > 0 {
		k.head, k.rows = next, append(k.rows, rows...)
		m.cases[c] = k
	}
	return true, nil
}

// Read implements Log: a case that does not exist, or is not the tenant's, has no receipts and no error.
func (m *Memory) Read(ctx context.Context, tenant string, c receipts.CaseID) ([]receipts.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if tenant == "" {
		return nil, ErrNoTenant
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.cases[c]
	if k == nil || k.tenant != tenant {
		return nil, nil
	}
	far := time.FixedZone("far", 14*3600)
	rows := slices.Clone(k.rows)
	for i := range rows {
		rows[i].Body = slices.Clone(rows[i].Body)
		rows[i].At = rows[i].At.In(far)
	}
	return rows, nil
}

// TryRewrite returns ErrAppendOnly: a Memory can't rewrite.
func (m *Memory) TryRewrite(_ context.Context, c receipts.CaseID, seq int64) error {
	return fmt.Errorf("%w: %s.%d", ErrAppendOnly, c, seq)
}
