package receiptstest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/receipts"
)

// broken is a Memory with one promise broken by a hook.
type broken struct {
	*Memory
	append  func(ctx context.Context, m *Memory, c receipts.CaseID, tenant string, drafts []receipts.Draft) error
	read    func(m *Memory, tenant string, c receipts.CaseID, rs []receipts.Receipt) []receipts.Receipt
	rewrite func(m *Memory, c receipts.CaseID, seq int64) error
}

func (b broken) Append(ctx context.Context, c receipts.CaseID, tenant string, drafts ...receipts.Draft) error {
	if b.append != nil {
		return b.append(ctx, b.Memory, c, tenant, drafts)
	}
	return b.Memory.Append(ctx, c, tenant, drafts...)
}

func (b broken) Read(ctx context.Context, tenant string, c receipts.CaseID) ([]receipts.Receipt, error) {
	rs, err := b.Memory.Read(ctx, tenant, c)
	if b.read != nil {
		return b.read(b.Memory, tenant, c, rs), nil
	}
	return rs, err
}

func (b broken) TryRewrite(ctx context.Context, c receipts.CaseID, seq int64) error {
	if b.rewrite != nil {
		return b.rewrite(b.Memory, c, seq)
	}
	return b.Memory.TryRewrite(ctx, c, seq)
}

func oneByOne(ctx context.Context, m *Memory, c receipts.CaseID, tenant string, drafts []receipts.Draft) error {
	for _, d := range drafts {
		if err := m.Append(ctx, c, tenant, d); err != nil {
			return err
		}
	}
	return nil
}

// interleaved is oneByOne where another append always gets in between.
func interleaved() func(context.Context, *Memory, receipts.CaseID, string, []receipts.Draft) error {
	var mu sync.Mutex
	held := map[receipts.CaseID]receipts.Draft{}
	return func(ctx context.Context, m *Memory, c receipts.CaseID, tenant string, drafts []receipts.Draft) error {
		mu.Lock()
		defer mu.Unlock()
		if late, ok := held[c]; ok {
			delete(held, c)
			return oneByOne(ctx, m, c, tenant, append(slices.Clone(drafts), late))
		}
		if len(drafts) == 2 {
			held[c] = drafts[1]
			drafts = drafts[:1]
		}
		return oneByOne(ctx, m, c, tenant, drafts)
	}
}

func stored(m *Memory, c receipts.CaseID) []receipts.Receipt {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.cases[c]; k != nil {
		return k.rows
	}
	return nil
}

func TestSuiteNoticesEachBrokenPromise(t *testing.T) {
	t.Parallel()
	breaches := map[string]broken{
		"appends continue one chain": {append: func(ctx context.Context, m *Memory, c receipts.CaseID, tenant string, drafts []receipts.Draft) error {
			drafts = slices.Clone(drafts)
			slices.SortFunc(drafts, func(a, b receipts.Draft) int { return a.At.Compare(b.At) })
			return m.Append(ctx, c, tenant, drafts...)
		}},
		"concurrent appends leave no gap": {append: interleaved()},
		"bodies are stored to the byte": {read: func(_ *Memory, _ string, _ receipts.CaseID, rs []receipts.Receipt) []receipts.Receipt {
			for i := range rs {
				var v any
				if err := json.Unmarshal(rs[i].Body, &v); err != nil {
					panic(err)
				}
				b, err := json.Marshal(v)
				if err != nil {
					panic(err)
				}
				rs[i].Body = b
			}
			return rs
		}},
		"what is read belongs to the reader": {read: func(m *Memory, _ string, c receipts.CaseID, _ []receipts.Receipt) []receipts.Receipt {
			return stored(m, c)
		}},
		"a refused append stores nothing": {append: oneByOne},
		"an ended context is answered truly": {append: func(ctx context.Context, m *Memory, c receipts.CaseID, tenant string, drafts []receipts.Draft) error {
			if err := m.Append(context.WithoutCancel(ctx), c, tenant, drafts...); err != nil {
				return err
			}
			return ctx.Err()
		}},
		"a tenant sees only its own": {read: func(m *Memory, _ string, c receipts.CaseID, _ []receipts.Receipt) []receipts.Receipt {
			return stored(m, c)
		}},
		"no tenant sees nothing": {read: func(m *Memory, tenant string, c receipts.CaseID, rs []receipts.Receipt) []receipts.Receipt {
			if tenant == "" {
				return stored(m, c)
			}
			return rs
		}},
		"a case keeps its tenant": {append: func(ctx context.Context, m *Memory, c receipts.CaseID, tenant string, drafts []receipts.Draft) error {
			if rs := stored(m, c); len(rs) > 0 {
				tenant = rs[0].Tenant
			}
			return m.Append(ctx, c, tenant, drafts...)
		}},
		"rewriting is refused": {rewrite: func(*Memory, receipts.CaseID, int64) error { return nil }},
	}
	if len(breaches) != len(promises) {
		t.Errorf("%d breaches for %d promises", len(breaches), len(promises))
	}
	for promised, log := range breaches {
		t.Run(promised, func(t *testing.T) {
			t.Parallel()
			log.Memory = NewMemory()
			i := slices.IndexFunc(promises, func(p promise) bool { return p.name == promised })
			if i < 0 {
				t.Fatal("no such promise")
			}
			if err := promises[i].check(t.Context(), log); err == nil {
				t.Error("the suite passes a log that breaks this")
			}
		})
	}
}

func TestSuiteNoticesWhatIsLostOrChangedQuietly(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		log      broken
		promised func(context.Context, Log) error
	}{
		"a lost tail": {broken{read: func(_ *Memory, _ string, _ receipts.CaseID, rs []receipts.Receipt) []receipts.Receipt {
			return rs[:max(0, len(rs)-1)]
		}}, appendsContinueOneChain},
		"times cut to milliseconds": {broken{read: func(_ *Memory, _ string, _ receipts.CaseID, rs []receipts.Receipt) []receipts.Receipt {
			for i := range rs {
				rs[i].At = rs[i].At.Truncate(time.Millisecond)
			}
			return rs
		}}, bodiesAreStoredToTheByte},
		"a rewrite that says it was refused": {broken{rewrite: func(m *Memory, c receipts.CaseID, seq int64) error {
			stored(m, c)[seq-1].Actor = "mallory"
			return ErrAppendOnly
		}}, rewritingIsRefused},
		"an append without a tenant": {broken{append: func(ctx context.Context, m *Memory, c receipts.CaseID, tenant string, drafts []receipts.Draft) error {
			if tenant == "" {
				tenant = "default"
			}
			return m.Append(ctx, c, tenant, drafts...)
		}}, noTenantSeesNothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.log.Memory = NewMemory()
			if err := test.promised(t.Context(), test.log); err == nil {
				t.Error("the suite passes it")
			}
		})
	}
}
