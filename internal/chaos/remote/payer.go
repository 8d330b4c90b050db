package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"syscall"
	"time"
)

// PayQueue is the queue of the adjudications that remote workers pay.
const PayQueue = "payouts"

// payer executes adjudications at a payment service, which keeps the ledger that they are judged by. It
// pays under the operation key, within the time of its order, and never states falsely that it did not
// pay before it has reported the payment. In all else it misbehaves as its habit and the seed have it.
type payer struct {
	name         string
	honest       bool
	rng          *rand.Rand
	door, pay    client
	ledger       client
	principal    string
	habit        Habit
	tenant       string
	fetches      int
	misreporting string // word of the payload for workers that report twice the sum
}

// order is an adjudication that a payer was given.
type order struct {
	ID   string            `json:"id"`
	Args []json.RawMessage `json:"args"`
	Meta struct {
		OperationKey  string    `json:"recourse.operation_key"`
		RequestDigest string    `json:"recourse.request_sha256"`
		Attempt       int       `json:"recourse.attempt"`
		NotAfter      time.Time `json:"recourse.not_after"`
	} `json:"meta"`
	length time.Duration // of the lease
}

// payBehaviours are the ways in which an order is executed, by weight.
var payBehaviours = []struct {
	weight int
	pay    func(*payer, context.Context, order) error
}{
	{50, (*payer).honestly},
	{7, (*payer).late},
	{6, (*payer).twice},
	{8, (*payer).refusing},
	{4, (*payer).handingBack},
	{4, (*payer).unclear},
	{4, (*payer).silently},
	{4, (*payer).killed},
	{3, (*payer).frozenAfter},
	{3, (*payer).frozenBefore},
	{4, (*payer).wrongly},
	{3, (*payer).underAnotherName},
}

func (p *payer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		orders, err := p.fetch(ctx)
		if err != nil {
			return err
		}
		for _, o := range orders {
			if err := p.post(context.WithoutCancel(ctx), p.given(o, p.name)); err != nil {
				return err
			}
		}
		if p.habit == Meddling && !p.honest && p.rng.IntN(3) == 0 {
			if err := p.meddle(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
		for _, o := range orders {
			if err := p.manner()(p, context.WithoutCancel(ctx), o); err != nil {
				return err
			}
		}
		if len(orders) == 0 {
			wait(ctx, idle)
		}
	}
	return nil
}

func (p *payer) manner() func(*payer, context.Context, order) error {
	if p.honest {
		return (*payer).honestly
	}
	switch p.habit {
	case Contradicting:
		return (*payer).contradicting
	case Meddling:
		return (*payer).honestly
	case Tardy:
		return (*payer).late
	}
	sum := 0
	for _, m := range payBehaviours {
		sum += m.weight
	}
	roll := p.rng.IntN(sum)
	for _, m := range payBehaviours {
		if roll -= m.weight; roll < 0 {
			return m.pay
		}
	}
	return (*payer).honestly // not reached: the weights add up
}

// fetch asks for orders. What got no answer is asked again, under the same key.
func (p *payer) fetch(ctx context.Context) ([]order, error) {
	p.fetches++
	length := time.Duration(1200+p.rng.IntN(1200)) * time.Millisecond
	headers := map[string]string{"Recourse-Tenant": p.tenant, "Idempotency-Key": fmt.Sprintf("%s/%d", p.name, p.fetches)}
	for range 5 {
		r := p.door.sendWith(ctx, http.MethodPost, workersPath+"fetch", map[string]any{
			"queues": []string{PayQueue}, "count": 1 + p.fetches%2, "worker_id": p.name, "visibility_timeout_ms": length.Milliseconds()}, headers)
		if r.unknown() {
			wait(ctx, idle)
			continue
		}
		var given struct {
			Jobs []order `json:"jobs"`
		}
		if r.status == http.StatusOK {
			if err := json.Unmarshal(r.body, &given); err != nil {
				return nil, fmt.Errorf("a fetch was answered with %s", r)
			}
		}
		for i := range given.Jobs {
			o := &given.Jobs[i]
			o.length = length
			if digest := sha256.Sum256(o.Args[0]); len(o.Args) != 1 || hex.EncodeToString(digest[:]) != o.Meta.RequestDigest {
				return nil, fmt.Errorf("the order %s is not the request of its digest", o.ID)
			}
		}
		return given.Jobs, nil
	}
	return nil, nil
}

// paid is what a payment service says of a payment.
type paid struct {
	Moved struct {
		Minor    int64  `json:"minor"`
		Currency string `json:"currency"`
	} `json:"moved"`
	Reference string `json:"reference"`
}

// outcome of a call: what was paid, or that nothing was, or neither.
type outcome struct {
	paid    *paid
	refused bool

	false, denies, ofOther bool // as of Report
}

// execute calls the payment service, unless it is too late.
func (p *payer) execute(ctx context.Context, o order) outcome {
	if !time.Now().Before(o.Meta.NotAfter) {
		return outcome{refused: true}
	}
	r := p.pay.sendWith(ctx, http.MethodPost, "/v1/executions", o.Args[0], map[string]string{"Idempotency-Key": o.Meta.OperationKey})
	var said paid
	switch {
	case (r.status == http.StatusOK || r.status == http.StatusCreated) && json.Unmarshal(r.body, &said) == nil && said.Moved.Minor > 0:
		var request struct {
			Payload struct {
				Executor string `json:"executor"`
			} `json:"payload"`
		}
		if json.Unmarshal(o.Args[0], &request) == nil && request.Payload.Executor == p.misreporting {
			said.Moved.Minor *= 2
		}
		return outcome{paid: &said}
	case r.status >= 400 && r.status < 500 && r.status != http.StatusRequestTimeout && r.status != http.StatusConflict:
		return outcome{refused: true}
	}
	return outcome{}
}

// given returns that a payer was given an order, as the named worker.
func (p *payer) given(o order, as string) Report {
	return Report{Given: true, Principal: p.principal, Worker: as, Order: o.ID, Key: o.Meta.OperationKey, Attempt: o.Meta.Attempt}
}

// report answers for an order, as the named worker, and reports whether that was accepted in time. What gets no
// answer is sent again.
func (p *payer) report(ctx context.Context, o order, as string, end outcome, requeue bool) (accepted bool, err error) {
	t := p.given(o, as)
	t.Given, t.False, t.Denies, t.OfOther, t.Class = false, end.false, end.denies, end.ofOther, Unclear
	body := map[string]any{"job_id": o.ID, "worker_id": as, "attempt": o.Meta.Attempt}
	path := workersPath + "nack"
	switch {
	case end.paid != nil:
		path, body["result"] = workersPath+"ack", end.paid
		t.Class, t.Moved, t.Reference = Executed, end.paid.Moved.Minor, end.paid.Reference
	case end.refused:
		body["error"], body["requeue"] = map[string]any{"code": "x_not_executed", "retryable": true}, requeue
		t.Class = NotExecuted
	default:
		body["error"], body["requeue"] = map[string]any{"code": "unclear", "retryable": true}, requeue
	}
	if err := p.post(ctx, t); err != nil {
		return false, err
	}
	for range 5 {
		r := p.door.sendWith(ctx, http.MethodPost, path, body, map[string]string{"Recourse-Tenant": p.tenant})
		switch {
		case r.unknown():
			wait(ctx, idle)
			continue
		case r.status == http.StatusUnauthorized || r.status == http.StatusForbidden:
			return false, fmt.Errorf("an answer of %s was answered with %s", p.principal, r)
		}
		t.Status, t.Rule = r.status, r.problem().Error.Details.Rule
		return r.ok(), p.post(ctx, t)
	}
	return false, nil
}

func (p *payer) honestly(ctx context.Context, o order) error {
	_, err := p.report(ctx, o, p.name, p.execute(ctx, o), false)
	return err
}

// late answers after the end of the lease.
func (p *payer) late(ctx context.Context, o order) error {
	end := p.execute(ctx, o)
	wait(ctx, o.length+time.Duration(p.rng.IntN(1500))*time.Millisecond)
	_, err := p.report(ctx, o, p.name, end, false)
	return err
}

func (p *payer) twice(ctx context.Context, o order) error {
	end := p.execute(ctx, o)
	if _, err := p.report(ctx, o, p.name, end, false); err != nil {
		return err
	}
	wait(ctx, time.Duration(p.rng.IntN(2)*300)*time.Millisecond)
	_, err := p.report(ctx, o, p.name, end, false)
	return err
}

// refusing pays nothing, and says so.
func (p *payer) refusing(ctx context.Context, o order) error {
	_, err := p.report(ctx, o, p.name, outcome{refused: true}, false)
	return err
}

func (p *payer) handingBack(ctx context.Context, o order) error {
	_, err := p.report(ctx, o, p.name, outcome{refused: true}, true)
	return err
}

// unclear pays, and says that it does not know.
func (p *payer) unclear(ctx context.Context, o order) error {
	p.execute(ctx, o)
	_, err := p.report(ctx, o, p.name, outcome{}, p.rng.IntN(2) == 0)
	return err
}

// silently pays, and says nothing.
func (p *payer) silently(ctx context.Context, o order) error {
	p.execute(ctx, o)
	return nil
}

// killed dies before the call, or after it.
func (p *payer) killed(ctx context.Context, o order) error {
	if p.rng.IntN(2) == 0 {
		p.execute(ctx, o)
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// frozenAfter pays, stands still past its lease, and answers then.
func (p *payer) frozenAfter(ctx context.Context, o order) error {
	end := p.execute(ctx, o)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	_, err := p.report(ctx, o, p.name, end, false)
	return err
}

// frozenBefore stands still before it checks the time.
func (p *payer) frozenBefore(ctx context.Context, o order) error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	return p.honestly(ctx, o)
}

// wrongly reports a payment in another currency first, which must change nothing.
func (p *payer) wrongly(ctx context.Context, o order) error {
	lie := paid{Reference: "lie"}
	lie.Moved.Minor, lie.Moved.Currency = 1, "XXX"
	if _, err := p.report(ctx, o, p.name, outcome{paid: &lie, false: true}, false); err != nil {
		return err
	}
	return p.honestly(ctx, o)
}

// underAnotherName reports a payment that was not made as somebody else, which must change nothing.
func (p *payer) underAnotherName(ctx context.Context, o order) error {
	lie := paid{Reference: "lie"}
	lie.Moved.Minor, lie.Moved.Currency = 1, "EUR"
	if _, err := p.report(ctx, o, p.name+"-other", outcome{paid: &lie, false: true}, false); err != nil {
		return err
	}
	return p.honestly(ctx, o)
}
