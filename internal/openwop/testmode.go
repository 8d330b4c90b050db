package openwop

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/openwop/spec"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// ExhaustPath is the path of the test endpoint that dead-letters a run. Only a process in test mode has it.
const ExhaustPath = Prefix + "/host/sample/deadletter/exhaust"

// exhaustWorkflow is the workflow of the runs that the test endpoint creates. The discovery document does
// not name it.
const exhaustWorkflow = "exhaust-retries"

// Fixtures are the workflows for conformance tests, with the families that execute them. Service is set
// when it is open.
type Fixtures struct {
	Service *postadjudication.Service
}

// conformanceWorkflow is a workflow for conformance tests.
type conformanceWorkflow struct {
	id, description string
	hidden          bool // not advertised
	policy          retrypolicy.Policy
	do              func(ctx context.Context, a background.Attempt, in fixtureInputs) background.Result
}

type fixtureInputs struct {
	DelayMS *int `json:"delayMs"`
}

func (f *Fixtures) all() []conformanceWorkflow {
	once := retrypolicy.Policy{MaxRetryAttempts: 1}
	succeed := func(context.Context, background.Attempt, fixtureInputs) background.Result {
		return background.Result{Class: background.Executed}
	}
	return []conformanceWorkflow{
		{id: "conformance-noop", description: "completes at once", policy: once, do: succeed},
		{id: "conformance-failure", description: "fails at once, for good", policy: once, do: fail},
		{id: "conformance-idempotent", description: "completes at once; its inputs are not used", policy: once, do: succeed},
		{id: "conformance-identity", description: "completes at once; its variables are its inputs", policy: once, do: succeed},
		{id: "conformance-delay", description: "completes after inputs.delayMs, 0 to 30000, 1000 if not given", policy: once, do: f.delay(time.Second, 30*time.Second)},
		{id: "conformance-cancellable", description: "completes after inputs.delayMs, 0 to 60000, 30000 if not given, and can be cancelled meanwhile", policy: once, do: f.delay(30*time.Second, 60*time.Second)},
		{id: exhaustWorkflow, description: "fails at each attempt", hidden: true, policy: retrypolicy.Policy{}, do: fail},
	}
}

func fail(context.Context, background.Attempt, fixtureInputs) background.Result {
	return background.Result{Class: background.NotExecuted, Retry: true, Failure: &background.Failure{Type: "core.fail", Message: "deterministic failure"}}
}

// Families returns the families that execute the workflows.
func (f *Fixtures) Families() (out []postadjudication.PlainFamily) {
	for _, one := range f.all() {
		out = append(out, postadjudication.PlainFamily{Name: one.id, Policy: one.policy, TimeLimit: 2 * time.Minute, Handle: func(ctx context.Context, a background.Attempt) background.Result {
			var in fixtureInputs
			if err := json.Unmarshal(a.Run.Payload, &in); err != nil {
				return background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "inputs.invalid", Message: "delayMs must be an integer"}}
			}
			return one.do(ctx, a, in)
		}})
	}
	return out
}

// Workflows returns the workflows.
func (f *Fixtures) Workflows() (out []spec.Workflow) {
	for _, one := range f.all() {
		out = append(out, spec.Workflow{ID: one.id, Name: one.id, Description: one.description, NodeType: nodeType(one), MaxRetries: one.policy.Normalize().MaxRetryAttempts - 1})
	}
	return out
}

func nodeType(f conformanceWorkflow) string {
	if f.id == "conformance-failure" || f.id == exhaustWorkflow {
		return "core.fail"
	}
	return "core.noop"
}

// Advertised returns the ids of the workflows that the discovery document names.
func (f *Fixtures) Advertised() (out []string) {
	for _, one := range f.all() {
		if !one.hidden {
			out = append(out, one.id)
		}
	}
	slices.Sort(out)
	return out
}

// cancelPoll is how often a workflow that waits looks whether it is to be cancelled.
const cancelPoll = 200 * time.Millisecond

// delay returns a function that waits as long as the inputs ask for, and ends early when the run is to be
// cancelled.
func (f *Fixtures) delay(usual, most time.Duration) func(context.Context, background.Attempt, fixtureInputs) background.Result {
	return func(ctx context.Context, a background.Attempt, in fixtureInputs) background.Result {
		wait := usual
		if in.DelayMS != nil {
			wait = time.Duration(min(max(0, *in.DelayMS), int(most/time.Millisecond))) * time.Millisecond
		}
		over := time.After(wait)
		look := time.NewTicker(cancelPoll)
		defer look.Stop()
		for {
			select {
			case <-over:
				return background.Result{Class: background.Executed}
			case <-ctx.Done():
				return background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "interrupted", Message: "the wait was interrupted"}}
			case <-look.C:
				if now, err := f.Service.Status(ctx, a.Run.Tenant, a.Run.ID); err == nil && now.CancelRequested {
					return background.Result{Class: background.NotExecuted, Failure: &background.Failure{Type: "cancelled", Message: "the run is to be cancelled"}}
				}
			}
		}
	}
}

// exhaustWait bounds how long the test endpoint waits for the run to be dead-lettered.
const exhaustWait = 15 * time.Second

// exhausted is the answer of the test endpoint.
type exhausted struct {
	Event        spec.Event `json:"event"`
	ForkEligible bool       `json:"forkEligible"`
	Run          string     `json:"runId"`
}

// exhaust answers POST ExhaustPath: it creates a run that fails at each attempt, waits until the engine has
// dead-lettered it, and reads run.dead_lettered from its log.
func (s *Server) exhaust(w http.ResponseWriter, q request) error {
	if err := spec.ParseExhaust(q.body); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(q.Context(), exhaustWait)
	defer cancel()
	made, err := s.Service.SubmitTask(ctx, postadjudication.Task{Tenant: q.caller.Tenant, Family: exhaustWorkflow, Payload: json.RawMessage("{}"), Actor: q.caller.Principal})
	if err != nil {
		return err
	}
	log, _, err := s.openRun(ctx, q.caller.Tenant, made.Run.String())
	if err != nil {
		return err
	}
	f := s.follow(ctx, q.caller, log)
	defer f.done()
	for !log.Ended() {
		if err := f.next(ctx); err != nil {
			return err
		}
	}
	for _, e := range log.Events {
		if e.Type != spec.RunDeadLettered {
			continue
		}
		eligible, err := s.forkEligible(ctx, q, log)
		if err != nil {
			return err
		}
		return s.write(w, http.StatusOK, exhausted{Event: e, ForkEligible: eligible, Run: log.Run.String()})
	}
	return errors.New("the run ended without run.dead_lettered")
}

// forkEligible reports whether a fork of the run is allowed by its state: the door shows the run, and fork is
// an allowed action of its dead letter.
func (s *Server) forkEligible(ctx context.Context, q request, log *runLog) (bool, error) {
	if _, _, err := s.openRun(ctx, q.caller.Tenant, log.Run.String()); err != nil {
		return false, err
	}
	found, err := q.operator.DeadLetters.Inspect(ctx, log.Run)
	if err != nil {
		return false, err
	}
	for _, a := range found.Actions {
		if a.Name == refusal.ActionFork {
			return a.Allowed, nil
		}
	}
	return false, nil
}
