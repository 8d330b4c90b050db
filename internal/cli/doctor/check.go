package doctor

import (
	"context"
	"errors"
	"fmt"
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
	Cure    string  `json:"cure,omitempty"` // what to do; empty when it is fine
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

// Examine looks at both servers. What can't be looked at is a check that is wrong,
// so there is no error.
func Examine(ctx context.Context, databaseURL string, redis asynq.RedisConnOpt) []Check {
	checks := examinePostgres(ctx, databaseURL)
	if checks[0].Verdict == Fine {
		checks = append(checks, examineSchema(ctx, databaseURL, redis)...)
	}
	return append(checks, examineRedis(ctx, redis)...)
}

// examineSchema opens the service, which compares versions, and asks what it can't read.
func examineSchema(ctx context.Context, databaseURL string, redis asynq.RedisConnOpt) []Check {
	const name = "schema version"
	service, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: databaseURL, Redis: redis})
	switch {
	case errors.Is(err, postadjudication.ErrSchema):
		what, cure, _ := strings.Cut(strings.TrimPrefix(err.Error(), postadjudication.ErrSchema.Error()+": "), "; ")
		return []Check{wrong(name, what, strings.TrimPrefix(cure, "run: "))}
	case err != nil:
		return []Check{wrong(name, err.Error(), "see the other checks of Postgres")}
	}
	runs, people := readable(ctx, service), onePerson(ctx, service)
	if err := service.Close(); err != nil {
		return []Check{wrong(name, err.Error(), "see the other checks of Postgres")}
	}
	return []Check{fine(name, "the one this program needs"), runs, people}
}

// onePerson names the tenants whose money one person may state or free.
func onePerson(ctx context.Context, service *postadjudication.Service) Check {
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

// readable asks for runs that this program passes over.
func readable(ctx context.Context, service *postadjudication.Service) Check {
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
