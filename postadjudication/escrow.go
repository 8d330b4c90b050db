package postadjudication

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/settlement"
)

// Outcome classes of one call, re-exported for executors.
const (
	Executed    = background.Executed
	NotExecuted = background.NotExecuted
	Unknown     = background.Unknown
)

// Class says what is known of the money after a call.
type Class = background.Class

// OperationKey is the idempotency key given to the escrow service: the SHA-256
// of tenant, escrow service, transaction receipt, outcome, generation and epoch.
// It is the same for every attempt, so that a repeated call cannot pay twice.
type OperationKey [32]byte

// String is the key as it goes over the wire: 64 hexadecimal digits.
func (k OperationKey) String() string { return hex.EncodeToString(k[:]) }

// Call is one call of an escrow service.
type Call struct {
	OperationKey OperationKey
	Request      []byte // stored with the key, the same bytes on every attempt
	Tenant       string
	Target       string // the escrow service's name
	Outcome      settlement.Outcome
	Amount       settlement.Money
	Generation   int // of the adjudication: a service that has seen a higher one of its transaction is to refuse this
	Run          background.RunID
	Attempt      int
	// Fresh reports whether the request may still leave; see Executor. It is nil in a
	// lookup, and in a call that no attempt makes.
	Fresh func() error
	// NotAfter is when nobody waits for the answer any more, by the database's clock: the
	// service is to execute nothing then. Zero where Fresh is nil.
	NotAfter time.Time
	// SentAgo is for how long nothing was sent under the operation key, by the times of the
	// receipts, which are those of the database's clock: of a lookup only.
	SentAgo time.Duration
}

// Answer is what a call, or a lookup, told. An executor that answers with class
// Executed states in Moved how much was moved for this operation key in all.
type Answer struct {
	Class      Class
	Retry      bool          // whether calling again may help; ignored when executed
	Moved      int64         // minor units; at least 1 when executed
	Reference  string        // the escrow service's name of the effect
	RetryAfter time.Duration // 0 unless the escrow service asked to wait
	Type       string        // stable name of the failure, such as "http.refused"; policies match it
	Code       string        // the escrow service's own code
	Message    string        // free text, redacted before it is kept
}

// Executor calls an escrow service. It MUST pass OperationKey on, MUST NOT
// change Request, and MUST answer Unknown whenever it can't tell whether money
// moved. It must be safe for concurrent use.
//
// It SHOULD ask Call.Fresh as late as it can: when all but the last byte of the request
// has left, behind anything that takes time, such as a dial. When that refuses, it
// sends no more and answers NotExecuted; the attempt then ends as interrupted and
// spends nothing. The process may have stood still since its claim, and others may have
// executed, or decided the opposite, meanwhile. It is also asked just before Execute is
// called.
type Executor interface {
	Execute(ctx context.Context, c Call) Answer
	// KeyLifetime is for how long after the first call, at least, the escrow service still
	// recognises an operation key. Zero means that no call may follow an unknown one;
	// Forever means that keys never expire.
	KeyLifetime() time.Duration
}

// Forever is the lifetime of operation keys that never expire.
const Forever time.Duration = 1<<63 - 1

// Lookuper is implemented by executors that can ask what became of an operation
// key: Executed with the amount moved, NotExecuted when the escrow service says that
// nothing was and nothing that it has received will be moved, else Unknown.
//
// Executed is believed always. NotExecuted is believed only when no call can be on its way
// any more, and only while the escrow service must still know the key: one that has
// forgotten a key says the same. Executors state both by InFlighter and LookupLifetimer.
type Lookuper interface {
	Lookup(ctx context.Context, c Call) Answer
}

// InFlighter is implemented by executors that know for how long the escrow service may
// still execute a call that was given up. DefaultInFlight, or what Config.InFlight says,
// holds for one that does not implement it, such as a wrapper that hides it. One that
// states no positive span answers a Lookup with NotExecuted only when no call of a live
// process can be on its way: see Call.SentAgo.
type InFlighter interface {
	InFlight() time.Duration
}

// Addressed is implemented by executors that can say where their escrow service is. The receipt
// of a lookup whose actor is self-declared records it.
type Addressed interface {
	Address() string // a URL
}

// LookupLifetimer is implemented by executors whose escrow service tells what became of an
// operation key for longer than it recognises the key in a call. Less than KeyLifetime
// means KeyLifetime.
type LookupLifetimer interface {
	LookupLifetime() time.Duration
}
