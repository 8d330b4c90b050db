package escrow

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/settlement"
)

// Outcome classes of a call, re-exported for executors.
const (
	Executed    = background.Executed
	NotExecuted = background.NotExecuted
	Unknown     = background.Unknown
)

// Class says what is known about the money after a call.
type Class = background.Class

// OperationKey is the idempotency key of an escrow service call: the SHA-256 of tenant, escrow
// service, transaction receipt, outcome, generation and epoch. It is equal on every attempt, so
// that a repeated call cannot pay twice.
type OperationKey [32]byte

// String returns the key as sent: 64 hexadecimal digits.
func (k OperationKey) String() string { return hex.EncodeToString(k[:]) }

// Call is one call of an escrow service.
type Call struct {
	OperationKey OperationKey
	Request      []byte // stored with the key, the same bytes on every attempt
	Tenant       string
	Target       string // the escrow service's name
	Outcome      settlement.Outcome
	Amount       settlement.Money
	Generation   int // of the adjudication: a service that has seen a higher one for the transaction must refuse the call
	Run          background.RunID
	Attempt      int
	// Fresh reports whether the request may still be sent; see Executor. Nil in lookups and in
	// calls outside an attempt.
	Fresh func() error
	// NotAfter is the time, by the database's clock, after which nobody waits for the answer:
	// the service must not execute the call then. Zero if Fresh is nil.
	NotAfter time.Time
	// SentAgo is the time since the last request under the operation key, by the receipts, and
	// so by the database's clock. Set in lookups only.
	SentAgo time.Duration
}

// Answer is the result of a call or lookup. For class Executed, the executor states in Moved
// the total moved under this operation key.
type Answer struct {
	Class      Class
	Retry      bool          // whether a retry may help; ignored if executed
	Moved      int64         // minor units; at least 1 if executed
	Reference  string        // the escrow service's id of the execution
	RetryAfter time.Duration // wait requested by the escrow service, or 0
	Type       string        // stable name of the failure, such as "http.refused"; policies match it
	Code       string        // the escrow service's own code
	Message    string        // free text, redacted before it is stored

	// Accepted says, with class Unknown, that the escrow service has the call and has not ended it. The attempt
	// spends nothing, and the service is asked until the call ends or Asynchronous.AcceptedFor is over: by
	// Lookup, or by the same call if the executor is no Lookuper. RetryAfter is when it may be asked again.
	Accepted bool
}

// Executor calls an escrow service. It MUST pass on OperationKey, MUST NOT change Request, and
// MUST answer Unknown whenever it can't tell whether money moved. It must be safe for
// concurrent use.
//
// It SHOULD call Call.Fresh as late as it can: when all but the last byte of the request has
// been sent, after anything that takes time, such as a dial. If Fresh returns an error, the
// executor sends no more and answers NotExecuted; the attempt then ends as interrupted and
// spends no budget. The reason: the process may have been suspended since its claim, and others
// may have executed the decision, or decided the opposite, meanwhile. Fresh is also called just
// before Execute.
type Executor interface {
	Execute(ctx context.Context, c Call) Answer
	// KeyLifetime is the minimum time after the first call for which the escrow service
	// recognises an operation key. Zero means that no call may follow one of unknown outcome;
	// Forever means that keys never expire.
	KeyLifetime() time.Duration
}

// Forever is the lifetime of operation keys that never expire.
const Forever time.Duration = 1<<63 - 1

// Lookuper is implemented by executors that can look up an operation key. The answer is
// Executed with the amount moved; NotExecuted if the escrow service states that nothing was
// moved and that no request it has received will move anything; else Unknown.
//
// Executed is always believed. NotExecuted is believed only once no call can be in flight, and
// only while the escrow service must still know the key, since a service that has forgotten a
// key answers the same. Executors state both times by InFlighter and LookupLifetimer.
type Lookuper interface {
	Lookup(ctx context.Context, c Call) Answer
}

// InFlighter is implemented by executors that know for how long the escrow service may still
// execute a call after the caller gave up. The default is postadjudication.Config.InFlight, or DefaultInFlight;
// it also applies to a wrapper that hides the method. An executor that returns zero or less
// answers a Lookup with NotExecuted only if no call of a live process can be in flight: see
// Call.SentAgo.
type InFlighter interface {
	InFlight() time.Duration
}

// Addressed is implemented by executors that know the address of their escrow service. The
// receipt of a lookup with a self-declared actor records it.
type Addressed interface {
	Address() string // a URL
}

// LookupLifetimer is implemented by executors whose escrow service answers lookups of a key for
// longer than it recognises the key in a call. A value below KeyLifetime means KeyLifetime.
type LookupLifetimer interface {
	LookupLifetime() time.Duration
}

// Asynchronous is implemented by executors whose escrow service accepts calls and ends them later. AcceptedFor is how
// long after the first call an accepted one is asked about. The default is DefaultAcceptedFor. It is asked about no
// longer than the service is sure to know the operation key. Then its outcome is unknown.
type Asynchronous interface {
	AcceptedFor() time.Duration
}

// DefaultAcceptedFor is how long an accepted call is asked about, unless the executor states another duration.
const DefaultAcceptedFor = 24 * time.Hour

// DefaultTarget is the escrow service called if postadjudication.Adjudication.Target is empty.
const DefaultTarget = binding.DefaultTarget

// FailureReplayer is implemented by executors whose escrow service answers a repeated operation
// key with the failure it stored. A fork then gets a new key, as it does after the key's
// lifetime, if every attempt under the old key is proven not executed.
type FailureReplayer interface {
	ReplaysFailures() bool
}

// DefaultInFlight is how long an abandoned call may still be executed, unless the executor or
// postadjudication.Config states another duration.
const DefaultInFlight = time.Minute
