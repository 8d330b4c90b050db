package postgres

import (
	"hash/maphash"
	"sync/atomic"
)

// escrowCacheSize is how many escrows are remembered at most; a power of two.
const escrowCacheSize = 1 << 16

// escrowCache remembers escrows that are known to be there. Each is a hash in the slot that
// the hash names, until another one falls there: what is forgotten is asked of the
// database again. It holds no pointers, which the garbage collector would follow.
type escrowCache struct {
	seed  maphash.Seed
	slots [escrowCacheSize]atomic.Uint64
}

func newEscrowCache() *escrowCache { return &escrowCache{seed: maphash.MakeSeed()} }

func (m *escrowCache) has(e escrowKey) bool {
	h := m.hash(e)
	return m.slots[h%escrowCacheSize].Load() == h
}

func (m *escrowCache) add(e escrowKey) {
	h := m.hash(e)
	m.slots[h%escrowCacheSize].Store(h)
}

func (m *escrowCache) forget(e escrowKey) {
	h := m.hash(e)
	m.slots[h%escrowCacheSize].CompareAndSwap(h, 0)
}

// hash is never that of an empty slot.
func (m *escrowCache) hash(e escrowKey) uint64 { return maphash.Comparable(m.seed, e) | 1<<63 }
