package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/client"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// maxCandidates is how many cases an error lists of those that an end could be of.
const maxCandidates = 10

// FindCase returns the case of the id of a run, a case or a job, of a transaction receipt id, or of the end of the id of
// one of its runs or of its transaction. If an end is of several cases, the error lists them, and has shell.ExitUsage. If there is
// none, the error is refusal.ErrNotFound.
func FindCase(ctx context.Context, cases Cases, what string) (casestatus.Case, error) {
	found, err := caseOf(ctx, cases, what)
	if len(what) < casestatus.MinEndBytes || !errors.Is(err, refusal.ErrNotFound) {
		return found, err
	}
	page, listed := cases.List(ctx, casestatus.Filter{End: what}, "", maxCandidates)
	var refused *client.ProblemError
	switch {
	case errors.As(listed, &refused) && refused.Code == "role_missing": // who may read a case may be none who lists them
		return casestatus.Case{}, err
	case listed != nil:
		return casestatus.Case{}, listed
	case len(page.Cases) == 0:
		return casestatus.Case{}, err
	case len(page.Cases) > 1:
		return casestatus.Case{}, ambiguous(what, page)
	}
	return cases.ByID(ctx, page.Cases[0].Case)
}

// FindLetter returns the run of the dead letter that an argument of FindCase names: the run itself, if the argument is
// its id or its end; else the last run of the case that became a dead letter.
func FindLetter(ctx context.Context, cases Cases, what string) (receipts.RunID, error) {
	found, err := FindCase(ctx, cases, what)
	if err != nil {
		return receipts.RunID{}, err
	}
	var last receipts.RunID
	for _, run := range found.Runs {
		if strings.HasSuffix(run.Run.String(), strings.ToLower(what)) && len(what) >= casestatus.MinEndBytes {
			return run.Run, nil
		}
		if run.Letter != "" {
			last = run.Run
		}
	}
	if last.IsZero() {
		return last, refusal.ErrNotFound
	}
	return last, nil
}

func ambiguous(what string, page casestatus.Page) error {
	text := fmt.Sprintf("%s is the end of %s:", what, shell.Plural(int(page.Total), "case"))
	for _, c := range page.Cases {
		text += "\n  run " + c.Run.String() + " of transaction " + c.Transaction
	}
	if page.More {
		text += "\n  and more"
	}
	return shell.WithCode(shell.ExitUsage, errors.New(text))
}

func caseOf(ctx context.Context, cases Cases, what string) (casestatus.Case, error) {
	run, err := receipts.ParseRunID(what)
	if err != nil {
		return cases.Find(ctx, what)
	}
	if status, err := cases.Run(ctx, run); !errors.Is(err, refusal.ErrNotFound) {
		if err != nil {
			return casestatus.Case{}, err
		}
		return cases.ByID(ctx, status.Case)
	}
	if found, err := cases.ByID(ctx, receipts.CaseID(run)); !errors.Is(err, refusal.ErrNotFound) {
		return found, err
	}
	return cases.Find(ctx, what)
}
