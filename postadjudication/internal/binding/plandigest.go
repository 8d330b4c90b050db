package binding

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/recourse-dev/recourse/receipts"
)

// Plan is what a bulk plan's digest covers beside its items.
type Plan struct {
	Tenant     string
	Action     string
	Request    string // parameters of the action, as JSON
	Actor      string
	Reason     string
	PlannedKey string // prefix of the access key that planned it; empty if no key proves who it was
}

// PlanDigest computes the digest of a bulk plan, by which people confirm it: of the plan, then
// of its items in order. Every part has a fixed length or is preceded by its length.
type PlanDigest struct{ hash hash.Hash }

// NewPlanDigest returns the digest of a plan without items.
func NewPlanDigest(p Plan) PlanDigest {
	d := PlanDigest{sha256.New()}
	parts := []string{"recourse/bulk/1", p.Tenant, p.Action, p.Request, p.Actor, p.Reason}
	if p.PlannedKey != "" {
		parts = append(parts, p.PlannedKey)
		parts[0] = "recourse/bulk/2"
	}
	for _, part := range parts {
		d.text(part)
	}
	return d
}

func (d PlanDigest) text(s string) {
	d.number(int64(len(s)))
	d.hash.Write([]byte(s))
}

func (d PlanDigest) number(n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	d.hash.Write(b[:])
}

// Add adds an item: a run, the head of its case when the plan was made, and the amount.
func (d PlanDigest) Add(run receipts.RunID, head receipts.Head, amount int64, currency string) {
	d.hash.Write(run[:])
	d.number(head.Seq)
	d.hash.Write(head.Link[:])
	d.number(amount)
	d.text(currency)
}

// Sum returns the digest of the plan with the items that were added.
func (d PlanDigest) Sum() [32]byte { return [32]byte(d.hash.Sum(nil)) }
