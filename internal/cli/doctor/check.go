package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/internal/serverfault"
	"github.com/recourse-dev/recourse/postadjudication"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts. Only Wrong counts as a failure.
const (
	Fine  Verdict = "ok"
	Hint  Verdict = "hint"
	Wrong Verdict = "wrong"
)

// Check is one check and its result.
type Check struct {
	Name    string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Result  string  `json:"result"`           // what was found
	Remedy  string  `json:"remedy,omitempty"` // what to do; empty if the verdict is Fine
}

func fine(name, result string) Check { return Check{Name: name, Verdict: Fine, Result: result} }

func hint(name, result, remedy string) Check { return Check{name, Hint, result, remedy} }

func wrong(name, result, remedy string) Check { return Check{name, Wrong, result, remedy} }

// refusedWrite returns the check of a server that answered and refused a write, in the words of /readyz where the fault is known.
func refusedWrite(name, what string, err error) Check {
	if f, known := serverfault.Of(err); known {
		return wrong(name, what+": "+f.Words+" ("+err.Error()+")", f.Remedy)
	}
	return wrong(name, what+": "+err.Error(), "see the server's log")
}

// Healthy reports whether nothing is wrong; hints don't count.
func Healthy(checks []Check) bool {
	for _, c := range checks {
		if c.Verdict == Wrong {
			return false
		}
	}
	return true
}

// Examine checks both servers, or only Postgres if redis is nil. It returns no error: what cannot
// be checked is a check with the verdict Wrong. Without a schema the checks of its content are
// left out.
func Examine(ctx context.Context, databaseURL string, redis asynq.RedisConnOpt) []Check {
	checks := examinePostgres(ctx, databaseURL)
	if checks[0].Verdict == Fine {
		checks = slices.Insert(checks, 1, examineSchema(ctx, databaseURL, redis)...)
	}
	if redis == nil {
		return append(checks, hint("Redis", "not named, and not checked", "to check it, set --redis or RECOURSE_REDIS_URL"))
	}
	return append(checks, examineRedis(ctx, redis)...)
}

// examineSchema opens the service, which checks the schema version and detects a pooler, and runs
// the checks that need the schema, including whether the Redis belongs to this database.
func examineSchema(ctx context.Context, databaseURL string, redis asynq.RedisConnOpt) []Check {
	const name, server = "schema version", "server"
	config := postadjudication.Config{DatabaseURL: databaseURL, Redis: redis}
	service, err := postadjudication.Open(ctx, config)
	triggers := fine(appendOnlyCheck, "triggers, functions and constraints are those of this version")
	if errors.Is(err, postadjudication.ErrSchema) { // if only guards of evidence are off, the other checks still work
		config.AllowUnsuitable = true
		if reads, off := withGuardsOff(ctx, config); reads != nil {
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
	checks := []Check{fine(name, "the version this program needs"), fine(server, "each connection is its own session"), checkJournal(ctx, service), triggers, checkAppRole(ctx, service), checkReadable(ctx, service), checkBlocked(ctx, service), checkServed(ctx, service), checkCalled(ctx, service), checkOnePerson(ctx, service), checkAccessKeys(ctx, service), checkDuties(ctx, service), checkWebhooks(ctx, service)}
	if redis != nil {
		checks = append(checks, checkRedisOwner(ctx, service))
	}
	if err := service.Close(); err != nil {
		return []Check{wrong(name, err.Error(), "see the other checks of Postgres")}
	}
	return checks
}

// checkJournal tries to write.
func checkJournal(ctx context.Context, service *postadjudication.Service) Check {
	const name = "journal"
	if err := service.Health().TryWrite(ctx); err != nil {
		return refusedWrite(name, "the journal cannot be written", err)
	}
	return fine(name, "a receipt was written, and rolled back")
}

const appendOnlyCheck = "receipts append-only"

// withGuardsOff opens a database whose only problem is that what protects evidence is off or changed, and returns the check
// that names it; nil for any other problem. It may be the only trace of tampering, and migrate removes it.
func withGuardsOff(ctx context.Context, config postadjudication.Config) (*postadjudication.Service, Check) {
	service, err := postadjudication.Open(ctx, config)
	if err != nil {
		return nil, Check{} // the caller reports the error of the first Open
	}
	off, err := service.Health().GuardsOff(ctx)
	if err != nil || len(off) == 0 {
		_ = service.Close() // the caller reports the error of the first Open
		return nil, Check{}
	}
	return service, wrong(appendOnlyCheck, "off or changed: "+strings.Join(off, ", ")+". A data-only restore disables triggers; only an attacker changes the rest",
		"run recourse receipts verify, find the cause, then run recourse migrate")
}

// checkServed finds live runs in queues that no process serves.
func checkServed(ctx context.Context, service *postadjudication.Service) Check {
	const name = "queues served"
	all, err := service.Health().Unserved(ctx)
	if err != nil {
		return wrong(name, err.Error(), "see the other checks of Postgres")
	}
	var queues []string
	for _, u := range all {
		queues = append(queues, fmt.Sprintf("%d in %s", u.Runs, u.Queue))
	}
	if len(queues) > 0 {
		return hint(name, "live runs in queues that no running process serves: "+strings.Join(queues, ", "), "start a process that executes these families")
	}
	return fine(name, "all queues with live runs")
}

// checkCalled finds live runs and open dead letters whose escrow service no process calls.
func checkCalled(ctx context.Context, service *postadjudication.Service) Check {
	const name = "escrow services called"
	all, err := service.Health().Uncalled(ctx)
	if err != nil {
		return wrong(name, err.Error(), "see the other checks of Postgres")
	}
	var targets []string
	for _, u := range all {
		targets = append(targets, fmt.Sprintf("%s (live runs: %d, open dead letters: %d)", u.Target, u.Runs, u.Letters))
	}
	if len(targets) > 0 {
		return hint(name, "no running process calls: "+strings.Join(targets, ", "), "start recourse serve with a --target for each; or cancel the runs, and reconcile the dead letters by findings")
	}
	return fine(name, "all escrow services of live runs and open dead letters")
}

// errorCheck returns the check of an error whose text is "problem; fix".
func errorCheck(name string, err, kind error) Check {
	what, remedy, _ := strings.Cut(strings.TrimPrefix(err.Error(), kind.Error()+": "), "; ")
	return wrong(name, what, strings.TrimPrefix(remedy, "run: "))
}

// checkRedisOwner checks whether the Redis belongs to this database.
func checkRedisOwner(ctx context.Context, service *postadjudication.Service) Check {
	const name = "Redis of this database"
	switch err := service.Health().CheckRedis(ctx); {
	case errors.Is(err, postadjudication.ErrRedis):
		what, remedy, _ := strings.Cut(strings.TrimPrefix(err.Error(), postadjudication.ErrRedis.Error()+": "), ": ")
		return wrong(name, what, remedy)
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	}
	return fine(name, "no other Redis is known")
}

// checkOnePerson names the tenants with people: 1.
func checkOnePerson(ctx context.Context, service *postadjudication.Service) Check {
	const name = "two people for money"
	found, err := service.Health().OnePersonTenants(ctx)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	case len(found) == 0:
		return fine(name, "required for every tenant")
	}
	tenants := make([]string, len(found))
	for i, p := range found {
		tenants[i] = fmt.Sprintf("%s (people: 1, set by %s: %s)", p.Tenant, p.Actor, p.Reason)
	}
	return hint(name, "not required for "+strings.Join(tenants, ", "), "recourse people set 2 --tenant NAME, if two people are available")
}

// checkBlocked finds runs of which no receipt can be recorded, so that no process changes them.
func checkBlocked(ctx context.Context, service *postadjudication.Service) Check {
	const name = "runs recordable"
	n, err := service.Health().Blocked(ctx)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	case n > 0:
		return wrong(name, fmt.Sprintf("the cases of %d live runs and open letters have a receipt beyond their head, which somebody wrote by hand: no process can change them", n), "run: recourse receipts verify, which names them; then the owner of the schema removes these receipts, as cmd/recourse/README.md says")
	}
	return fine(name, "all")
}

// checkReadable finds runs that this program cannot read and therefore skips.
func checkReadable(ctx context.Context, service *postadjudication.Service) Check {
	const name = "runs readable"
	n, err := service.Health().Unreadable(ctx)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "see the other checks of Postgres")
	case n > 0:
		return wrong(name, fmt.Sprintf("this program can't read %d of the live runs and open letters", n), "use a newer recourse, or find the reason in the log of recourse serve")
	}
	return fine(name, "all")
}
