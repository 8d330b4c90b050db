package refusal

import (
	"errors"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/settlement"
)

// FieldError names a field of an input and what is wrong with it.
type FieldError = settlement.FieldError

// TooManyRefusalsError says that a caller was refused so often that refusals are neither
// recorded nor explained for a while.
type TooManyRefusalsError struct {
	After time.Duration // until refusals are recorded again
}

func (e *TooManyRefusalsError) Error() string {
	return "postadjudication: refused too often; retry in " + e.After.String()
}

// Errors of Cancel besides ErrNotFound.
var (
	// ErrReconcileFirst: an attempt's outcome is unknown, so cancelling could hide a payment.
	ErrReconcileFirst = background.ErrReconcileFirst
	// ErrEnded: the run has ended, so there is nothing to cancel.
	ErrEnded = errors.New("postadjudication: the run has ended")
)

// RefusedError says which gate refuses an action, and the current state.
type RefusedError struct {
	Gate      Gate
	Run       background.RunID
	Letter    background.LetterStatus
	ActiveRun background.RunID // the active run of the case
	// Because gives details, such as the escrow service's answer to a lookup; often empty.
	Because string
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("postadjudication: refused by %s: %s: run %s", e.Gate, e.Gate.Meaning(), e.Run)
	if e.Letter != background.NoLetter {
		s += ", letter is " + string(e.Letter)
	}
	if e.Because != "" {
		s += "; " + e.Because
	}
	if e.ActiveRun != e.Run {
		s += "; the active run of the case is " + e.ActiveRun.String()
	}
	return s
}

// ErrNoExecutor means that Run was called on a Service without an Executor.
var ErrNoExecutor = errors.New("postadjudication: Config.Executor is needed to run settlements")

// ErrNotFound means that the tenant has no such run or case.
var ErrNotFound = background.ErrNotFound

// ErrUnreadable means that the run was written by a newer version and can't be read. It is
// left unchanged for a program that can read it.
var ErrUnreadable = background.ErrUnreadable

// ErrUnrecordable means that a value can't be recorded. Nothing was recorded.
var ErrUnrecordable = background.ErrUnrecordable

// ErrBatchTooLong means that one transaction takes too long for the jobs of a batch: none was enqueued. Smaller batches take less.
var ErrBatchTooLong = errors.New("postadjudication: the batch takes longer than a transaction may take")

// ErrTargetUnknown means that this process does not call the escrow service of a run: it is
// not one of Config.Targets.
var ErrTargetUnknown = background.ErrTargetUnknown
