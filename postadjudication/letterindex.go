package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// RebuildRequest asks for a tenant's list of dead letters to be made anew.
type RebuildRequest struct {
	Tenant string // required
	Actor  string // required
	Reason string // required
	// Progress is called after each step with what was done until then; may be nil.
	Progress func(Rebuilt)
}

// Rebuilt is what was found wrong in a list of dead letters, and put right.
type Rebuilt struct {
	Scanned     int `json:"letters"` // dead letters that were looked at
	Inserted    int `json:"made"`    // rows that were missing
	Updated     int `json:"changed"` // rows that were otherwise
	Removed     int `json:"removed"` // rows of what is no dead letter
	FacetGroups int `json:"shapes"`  // counts, and what letters have in common, that were otherwise
}

func (r Rebuilt) sum(s postgres.RebuildResult) Rebuilt {
	return Rebuilt{r.Scanned + s.Examined, r.Inserted + s.Added, r.Updated + s.Changed, r.Removed + s.Removed, r.FacetGroups + s.FacetGroups}
}

// rebuildBatch is how many rows a step looks at, with what changes of them in one commit.
const rebuildBatch = 500

// RebuildLetters makes a tenant's list of dead letters anew from the runs and cases that it
// is read off, by the same code that keeps it: only rows that differ are written, some
// hundreds in a commit, each commit with a receipt that says how many. Workers may run
// meanwhile. When it ends before its time, what it did is done; asked again it does the
// rest, and nothing where nothing differs. Bad input is a *FieldError (joined, one per field).
func (s *Service) RebuildLetters(ctx context.Context, q RebuildRequest) (Rebuilt, error) {
	if err := errors.Join(requireText("tenant", q.Tenant, 128), requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024)); err != nil {
		return Rebuilt{}, err
	}
	if err := s.journal.CatchUpForPlan(ctx); err != nil {
		return Rebuilt{}, err
	}
	var all Rebuilt
	reason := cleanText(q.Reason, 1024)
	for place := (postgres.RebuildPosition{}); !place.Done(); {
		done, next, err := s.journal.RebuildLetters(ctx, q.Tenant, place, rebuildBatch, func(r postgres.RebuildResult) receipts.Draft {
			return receipts.Draft{Actor: q.Actor, At: s.now(), Payload: receipts.Payload{Reason: reason, Changes: rebuildText(r)}}
		})
		if err != nil {
			return all, err
		}
		if all, place = all.sum(done), next; q.Progress != nil {
			q.Progress(all)
		}
	}
	return all, nil
}

func rebuildText(r postgres.RebuildResult) string {
	return fmt.Sprintf("%d rows made, %d changed, %d removed; %d counts changed", r.Added, r.Changed, r.Removed, r.FacetGroups)
}

// Tenants lists the tenants that anything was ever handed over for.
func (s *Service) Tenants(ctx context.Context) ([]string, error) { return s.journal.Tenants(ctx) }

// Times of the projector. Whoever lists letters brings the list up to date first, so
// that it need not hurry; steps far apart look at a case once for all that happened
// to it.
const (
	projectPause = time.Second

	// projectCostFactor bounds what it may cost: the pause after a step is at least this
	// many times its length.
	projectCostFactor = 4
)

// projector keeps the list of letters up to date, as long as no other process does.
type projector struct {
	journal *postgres.Journal
	log     *zap.Logger
}

// run works until ctx ends.
func (p projector) run(ctx context.Context) {
	failing := false
	for pause := projectPause; sleepOr(ctx, pause, nil); {
		begin := time.Now()
		step, err := p.journal.ProjectLetters(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			p.log.Error("the list of dead letters can't be brought up to date, trying on", zap.Error(err))
		}
		failing = err != nil
		if pause = max(projectPause, projectCostFactor*time.Since(begin)); step.More {
			pause = projectCostFactor * time.Since(begin)
		}
	}
}
