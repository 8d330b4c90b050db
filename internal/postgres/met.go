package postgres

import (
	"hash/maphash"
	"sync/atomic"
)

// metSize is how many escrows are remembered at most; a power of two.
const metSize = 1 << 16

// met remembers escrows that are known to be there. Each is a hash in the slot that
// the hash names, until another one falls there: what is forgotten is asked of the
// database again. It holds no pointers, which the garbage collector would follow.
type met struct {
	seed  maphash.Seed
	slots [metSize]atomic.Uint64
}

func newMet() *met { return &met{seed: maphash.MakeSeed()} }

func (m *met) has(e escrowName) bool {
	h := m.hash(e)
	return m.slots[h%metSize].Load() == h
}

func (m *met) add(e escrowName) {
	h := m.hash(e)
	m.slots[h%metSize].Store(h)
}

func (m *met) forget(e escrowName) {
	h := m.hash(e)
	m.slots[h%metSize].CompareAndSwap(h, 0)
}

// hash is never that of an empty slot.
func (m *met) hash(e escrowName) uint64 { return maphash.Comparable(m.seed, e) | 1<<63 }
