package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/postadjudication"
)

// Verdict is what a check came to.
type Verdict string

// The verdicts. Only Wrong makes a patient sick.
const (
	Fine  Verdict = "ok"
	Hint  Verdict = "hint"
	Wrong Verdict = "wrong"
)

// Check is one thing that was looked at.
type Check struct {
	Name    string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Result  string  `json:"result"`         // what was found
	Remedy  string  `json:"cure,omitempty"` // what to do; empty when it is fine
}

func fine(name, result string) Check { return Check{Name: name, Verdict: Fine, Result: result} }

func hint(name, result, cure string) Check { return Check{name, Hint, result, cure} }

func wrong(name, result, cure string) Check { return Check{name, Wrong, result, cure} }

// Healthy reports whether nothing is wrong; hints don't count.
func Healthy(checks []Check) bool {
	for _, c := range checks {
		if c.Verdict == Wrong {
			return false
		}
	}
	return true
}

// Examine looks at both servers, or where no Redis is named at Postgres alone. What can't
// be looked at is a check that is wrong, so there is no error. That there is no schema comes
// before what it would hold.
func Examine(ctx context.Context, databaseURL string, redis asynq.RedisConnOpt) []Check {
	checks := examinePostgres(ctx, databaseURL)
	if checks[0].Verdict == Fine {
		checks = slices.Insert(checks, 1, examineSchema(ctx, databaseURL, redis)...)
	}
	if redis == nil {
		return append(checks, hint("Redis", "not named, and not checked", "name it by --redis or RECOURSE_REDIS_URL, where it is to be checked"))
	}
	return append(checks, examineRedis(ctx, redis)...)
}

// examineSchema opens the service, which compares versions and looks for a pooler, and
// asks what it can't read and whether the Redis is its own.
func examineSchema(ctx context.Context, databaseURL string, redis asynq.RedisConnOpt) []Check {
	const name, server = "schema version", "server"
	config := postadjudication.Config{DatabaseURL: databaseURL, Redis: redis}
	service, err := postadjudication.Open(ctx, config)
	triggers := fine(appendOnlyCheck, "triggers in force")
	if errors.Is(err, postadjudication.ErrSchema) { // it may be the triggers alone: then the rest can be looked at
		config.AllowUnsuitable = true
		if reads, off := withTriggersOff(ctx, config); reads != nil {
			service, err, triggers = reads, nil, off
		}
	}
	switch {
	case errors.Is(err, postadjudication.ErrSchema):
		return []Check{errorCheck(name, err, postadjudication.ErrSchema)}
	case errors.Is(err, postadjudication.ErrUnsuitable):
		return []Check{errorCheck(server, err, postadjudication.ErrUnsuitable)}
	case err != nil:
		return []Check{wrong(name, err.Error(), "see the other checks of Postgres")}
	}
	checks := []Check{fine(name, "the one this program needs"), fine(server, "takes writes, and each connection is a session of its own"), triggers, checkAppRole(ctx, service), checkReadable(ctx, service), checkServed(ctx, service), checkCalled(ctx, service), checkOnePerson(ctx, service), checkAccessKeys(ctx, service)}
	if redis != nil {
		checks = append(checks, checkRedisOwner(ctx, service))
	}
	if err := service.Close(); err != nil {
		return []Check{wrong(name, err.Error(), "see the other checks of Postgres")}
	}
	return checks
}

const appendOnlyCheck = "receipts append-only"

// withTriggersOff opens a database of which nothing else is wrong than that triggers are not in
// force, and gives the check that says so; nil where it is something else. That they are off
// may be the trace of tampering, which migrate takes away.
func withTriggersOff(ctx context.Context, config postadjudication.Config) (*postadjudication.Service, Check) {
	service, err := postadjudication.Open(ctx, config)
	if err != nil {
		return nil, Check{} // told as the guarded opening tells it
	}
	off, err := service.TriggersOff(ctx)
	if err != nil || len(off) == 0 {
		_ = service.Close() // what is wrong is told by the opening before
		return nil, Check{}
	}
	return service, wrong(appendOnlyCheck, "not in force: "+strings.Join(off, ", ")+". A data-only restore turns triggers off, and so does who means to change evidence",
		"recourse receipts verify, and once that was looked into recourse migrate")
}

// checkServed asks for runs that wait where no process works.
func checkServed(ctx context.Context, service *postadjudication.Service) Check {
	const name = "queues served"
	all, err := service.Unserved(ctx)
	if err != nil {
		return wrong(name, err.Error(), "see the other checks of Postgres")
	}
	var queues []string
	for _, u := range all {
		queues = append(queues, fmt.Sprintf("%d in %s", u.Runs, u.Queue))
	}
	if len(queues) > 0 {
		return hint(name, "live runs in queues that no running process serves: "+strings.Join(queues, ", "), "start a process that has these families")
	}
	return fine(name, "all that live runs are in")
}

// checkCalled asks for runs and dead letters whose escrow service no process calls.
func checkCalled(ctx context.Context, service *postadjudication.Service) Check {
	const name = "escrow services called"
	all, err := service.Uncalled(ctx)
	if err != nil {
		return wrong(name, err.Error(), "see the other checks of Postgres")
	}
	var targets []string
	for _, u := range all {
		targets = append(targets, fmt.Sprintf("%s (live runs: %d, open dead letters: %d)", u.Target, u.Runs, u.Letters))
	}
	if len(targets) > 0 {
		return hint(name, "no running process calls: "+strings.Join(targets, ", "), "start recourse serve, with --target for each that is not its --escrow; or cancel the runs, and reconcile the dead letters by a finding")
	}
	return fine(name, "all that live runs and open dead letters name")
}

// errorCheck is the check of an error that says what is wrong and, behind a semicolon, the cure.
func errorCheck(name string, err, kind error) Check {
	what, cure, _ := strings.Cut(strings.TrimPrefix(err.Error(), kind.Error()+": "), "; ")
	return wrong(name, what, strings.TrimPrefix(cure, "run: "))
}

// checkRedisOwner asks whether the Redis is the one by which this database is worked on.
func checkRedisOwner(ctx context.Context, service *postadjudication.Service) Check {
	const name = "Redis of this database"
	switch err := service.CheckRedis(ctx); {
	case errors.Is(err, postadjudication.ErrRedis):
		what, cure, _ := strings.Cut(strings.TrimPrefix(err.Error(), postadjudication.ErrRedis.Error()+": "), ": ")
		return wrong(name, what, cure)
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	}
	return fine(name, "no other is known")
}

// checkOnePerson names the tenants whose money one person may state or free.
func checkOnePerson(ctx context.Context, service *postadjudication.Service) Check {
	const name = "two people for money"
	found, err := service.OnePersonTenants(ctx)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	case len(found) == 0:
		return fine(name, "of every tenant")
	}
	tenants := make([]string, len(found))
	for i, p := range found {
		tenants[i] = fmt.Sprintf("%s (people: 1, set by %s: %s)", p.Tenant, p.Actor, p.Reason)
	}
	return hint(name, "not of "+strings.Join(tenants, ", "), "recourse people set 2 --tenant NAME, where two can be asked for")
}

// checkReadable asks for runs that this program passes over.
func checkReadable(ctx context.Context, service *postadjudication.Service) Check {
	const name = "runs readable"
	n, err := service.UnreadableRuns(ctx)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	case n > 0:
		return wrong(name, fmt.Sprintf("this program can't read %d of the live runs and open letters", n), "use a newer recourse, or see in the log of a worker what it can't read")
	}
	return fine(name, "all")
}
