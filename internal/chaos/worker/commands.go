package worker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/references"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// The commands of a worker, with the members that each uses.
const (
	Submit         = "submit"          // Adjudication
	SubmitTx       = "submit-tx"       // Adjudication, in a transaction of the worker's own
	OpenTx         = "open-tx"         // Adjudication, in a transaction that stays open for Offset; with Attempts it is rolled back
	SubmitTask     = "task"            // RetryKey, of the worker's plain family
	Cancel         = "cancel"          // Tenant and Run
	Fork           = "fork"            // Tenant and Run
	Hold           = "hold"            // Tenant and Run
	ReleaseHold    = "release-hold"    // Tenant and Run, which is held
	Mark           = "mark"            // Tenant and Run
	Purge          = "purge"           // Tenant's open letters, by a plan that the worker runs
	Rebuild        = "rebuild"         // Tenant's list of dead letters
	Bulk           = "bulk"            // all of Tenant's open letters are forked by a plan
	CancelBulk     = "cancel-bulk"     // the same, slowly, and the plan is cancelled
	Return         = "return"          // all that Tenant's settled cases have paid came back: recorded by a plan
	Free           = "free"            // what all of Tenant's cases have reserved, by a plan
	People         = "people"          // sets how many people Tenant's money takes to Attempts
	Rule           = "rule"            // sets a rule that replays all of Tenant's open letters Attempts times
	OpenBreaker    = "open-breaker"    // the circuit breaker of Tenant's escrow service
	ReleaseBreaker = "release-breaker" // the same
	SetPolicy      = "set-policy"      // Tenant's settlement policy: Attempts
	SetReferences  = "set-references"  // Tenant's policy of references: KIDs of Attempts digits
	UseKeys        = "use-keys"        // makes, uses and revokes a key of Tenant
	Refuse         = "refuse"          // an action of Tenant is refused, about Run if given
	Request        = "request"         // of Tenant, under an idempotency key
	EnqueueJob     = "job"             // RetryKey; with Attempts attempts, and then it is discarded
	PendingJob     = "job-pending"     // the same, to be activated
	UniqueJob      = "job-unique"      // the same, unique
	ActivateJob    = "job-activate"    // RetryKey
	FetchJob       = "job-fetch"       // by the remote worker Run, under a lease of Offset, and under Key if given; the reply has its id as Run and its attempt as Running
	BeatJob        = "job-heartbeat"   // RetryKey and Run
	AckJob         = "job-ack"         // RetryKey, Run and Attempts: the attempt; the reply is created, or has the state of the job
	PaidJob        = "job-paid"        // the same, of an adjudication that was paid as Adjudication says
	NackJob        = "job-nack"        // the same
	DieJob         = "job-die"         // the same; it is a dead letter then
	RetryJob       = "job-retry"       // RetryKey, a dead letter
	CancelJob      = "job-cancel"      // RetryKey
	CreateWebhook  = "create-webhook"  // of Tenant, to URL, signed with WebhookSecret, from the first event on; nothing if there is one
	PauseWebhooks  = "pause-webhooks"  // of Tenant
	ResumeWebhooks = "resume-webhooks" // of Tenant
	Clock          = "clock"           // Offset: a step of the worker's clock
	Stats          = "stats"           // count what the process is doing
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
	Key          string                        `json:",omitempty"`
	URL          string                        `json:",omitempty"`
}

// Reply is one line of its output. The first one has no ID: the worker is open.
type Reply struct {
	ID       int
	Reply    postadjudication.Reply `json:",omitempty"` // of a submission
	Run      string                 `json:",omitempty"`
	State    string                 `json:",omitempty"`
	Running  int                    `json:",omitempty"` // of Stats: calls going on; of FetchJob: the attempt
	Error    string                 `json:",omitempty"`
	Address  string                 `json:",omitempty"` // of the first one: where /ojs is served
	Received *Statement             `json:",omitempty"` // the executor returned a payment; such a reply has no ID
}

// Operator is the actor of a worker's commands.
const Operator = "user:chaos"

const (
	tenant      = "chaos"
	actor       = Operator
	secondActor = "user:second" // who runs plans that take two people
	reason      = "chaos"
)

func (p *process) do(ctx context.Context, c Command) Reply {
	r := Reply{ID: c.ID}
	var err error
	switch c.Do {
	case Submit:
		var s postadjudication.Submitted
		s, err = p.service.Submit(ctx, c.Adjudication)
		r.submitted(s, err)
	case SubmitTx, OpenTx:
		var s postadjudication.Submitted
		s, err = p.submitTx(ctx, c)
		r.submitted(s, err)
	case SubmitTask:
		var s postadjudication.Submitted
		s, err = p.service.SubmitTask(ctx, postadjudication.Task{Tenant: tenant, Family: plainFamilyName, RetryKey: c.RetryKey})
		r.submitted(s, err)
	case Cancel:
		err = p.cancel(ctx, c, &r)
	case Fork:
		err = p.fork(ctx, c, &r)
	case OpenBreaker:
		_, err = p.service.As(c.Tenant, actor).Breakers.Open(ctx, escrow.DefaultTarget, reason)
	case ReleaseBreaker:
		_, err = p.service.As(c.Tenant, actor).Breakers.Release(ctx, escrow.DefaultTarget, reason)
	case SetPolicy:
		_, err = p.service.As(c.Tenant, actor).Policies.Set(ctx, postadjudication.PolicyChange{Family: postadjudication.Family, Reason: reason,
			Policy: retrypolicy.Policy{MaxRetryAttempts: c.Attempts, BaseDelay: p.settings.BaseDelay}})
	case SetReferences:
		_, err = p.service.As(c.Tenant, actor).References.Set(ctx, references.Change{Reason: reason, Policy: references.Policy{
			Rules: []references.Rule{{Field: references.FieldReference, Scheme: references.KID, Length: c.Attempts}},
		}})
	case Hold, ReleaseHold, Mark, Purge:
		err = p.annotate(ctx, c)
	case Rebuild:
		_, err = p.service.As(c.Tenant, actor).DeadLetters.Rebuild(ctx, reason, nil)
	case Bulk, CancelBulk:
		err = p.bulk(ctx, c)
	case Free:
		err = p.free(ctx, c)
	case Return:
		err = p.returned(ctx, c)
	case People:
		err = p.people(ctx, c)
	case Rule:
		err = p.rule(ctx, c)
	case EnqueueJob, PendingJob, UniqueJob, ActivateJob, FetchJob, BeatJob, AckJob, PaidJob, NackJob, DieJob, RetryJob, CancelJob:
		err = p.job(ctx, c, &r)
	case CreateWebhook, PauseWebhooks, ResumeWebhooks:
		err = p.webhooks(ctx, c)
	case UseKeys, Refuse, Request:
		err = p.access(ctx, c)
	case Clock:
		p.offset.Store(int64(c.Offset))
	case Stats:
		r.Running = p.service.Health().Stats().Running
	default:
		err = fmt.Errorf("worker: command %q", c.Do)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

func (r *Reply) submitted(s postadjudication.Submitted, err error) {
	if err == nil {
		r.Reply, r.Run, r.State = s.Reply, s.Run.String(), string(s.State)
	}
}

// submitTx submits in one transaction with a statement of the caller. The transaction may stay
// open for a while. A rolled back submission has no reply.
func (p *process) submitTx(ctx context.Context, c Command) (s postadjudication.Submitted, err error) {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return s, err
	}
	defer func() {
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			err = errors.Join(err, undo)
		}
	}()
	if s, err = p.service.SubmitTx(ctx, tx, c.Adjudication); err != nil {
		return s, err
	}
	if c.Do == OpenTx {
		select {
		case <-time.After(c.Offset):
		case <-ctx.Done():
			return postadjudication.Submitted{}, ctx.Err()
		}
		if c.Attempts > 0 {
			return postadjudication.Submitted{}, nil
		}
	}
	if s.Reply != postadjudication.Created {
		return s, nil
	}
	if err := tx.Commit(); err != nil {
		return s, err
	}
	// A failed notification is no failure: the run is committed, and the sweeper notifies.
	_ = s.Notify(ctx)
	return s, nil
}

func (p *process) cancel(ctx context.Context, c Command, r *Reply) error {
	id, err := receipts.ParseRunID(c.Run)
	if err != nil {
		return err
	}
	status, err := p.service.As(c.Tenant, actor).Cases.Cancel(ctx, id, reason)
	r.Run, r.State = c.Run, string(status.State)
	return err
}

func (p *process) fork(ctx context.Context, c Command, r *Reply) error {
	id, err := receipts.ParseRunID(c.Run)
	if err != nil {
		return err
	}
	s, err := p.service.As(c.Tenant, actor).DeadLetters.Fork(ctx, id, deadletter.Fork{Reason: reason})
	if err == nil {
		r.Reply, r.Run, r.State = postadjudication.Created, s.Run.String(), string(s.State)
	}
	return err
}

func zapTime(t time.Time, e zapcore.PrimitiveArrayEncoder) {
	e.AppendString(t.UTC().Format("15:04:05.000"))
}
