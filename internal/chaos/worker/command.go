package worker

import (
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
)

// What a worker can be told to do.
const (
	Submit         = "submit"    // Adjudication
	SubmitTx       = "submit-tx" // Adjudication, in a transaction of the worker's own
	OpenTx         = "open-tx"   // Adjudication, in a transaction that stays open for Offset; with Attempts it is rolled back
	SubmitTask     = "task"      // RetryKey, of the worker's plain family
	Cancel         = "cancel"    // Tenant and Run
	Fork           = "fork"      // Tenant and Run
	Hold           = "hold"      // Tenant and Run
	ReleaseHold    = "let-go"    // Tenant and Run, which is held
	Mark           = "mark"      // Tenant and Run
	Purge          = "purge"     // Tenant's open letters
	Rebuild        = "rebuild"   // Tenant's list of dead letters
	Bulk           = "bulk"      // all of Tenant's open letters are forked by a plan
	CancelBulk     = "break"     // the same, slowly, and the plan is cancelled
	Free           = "free"      // what all of Tenant's cases have reserved, by a plan
	People         = "people"    // how many people Tenant's money takes: Attempts
	Rule           = "rule"      // one that replays all of Tenant's open letters: Attempts times
	OpenBreaker    = "pull"      // the brake of Tenant's escrow service
	ReleaseBreaker = "release"   // the same
	SetPolicy      = "tune"      // Tenant's settlement policy: Attempts
	UseKeys        = "keys"      // one of Tenant is made, used and revoked
	Refuse         = "refuse"    // Tenant something, about Run if there is one
	Request        = "request"   // of Tenant, under an idempotency key
	Clock          = "clock"     // Offset: a step of the worker's clock
	Stats          = "stats"     // count what the process is doing
)

// Command is one line of a worker's input.
type Command struct {
	ID           int
	Do           string
	Adjudication postadjudication.Adjudication `json:",omitzero"`
	RetryKey     string                        `json:",omitempty"`
	Tenant       string                        `json:",omitempty"`
	Run          string                        `json:",omitempty"`
	Offset       time.Duration                 `json:",omitempty"`
	Attempts     int                           `json:",omitempty"`
}

// Reply is one line of its output. The first has no ID: the worker is open.
type Reply struct {
	ID      int
	Reply   postadjudication.Reply `json:",omitempty"` // of a submission
	Run     string                 `json:",omitempty"`
	State   string                 `json:",omitempty"`
	Running int                    `json:",omitempty"` // of Stats: calls going on
	Error   string                 `json:",omitempty"`
}
