package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/every"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/receipts"
)

// Rebuilt counts what a rebuild of the index checked and corrected.
type Rebuilt struct {
	Scanned     int `json:"letters"`      // dead letters checked
	Inserted    int `json:"inserted"`     // missing rows
	Updated     int `json:"changed"`      // rows that differed
	Removed     int `json:"removed"`      // rows without a dead letter
	FacetGroups int `json:"facet_groups"` // counts and facet groups that differed
}

func (r Rebuilt) sum(s search.RebuildResult) Rebuilt {
	return Rebuilt{r.Scanned + s.Examined, r.Inserted + s.Added, r.Updated + s.Changed, r.Removed + s.Removed, r.FacetGroups + s.FacetGroups}
}

// rebuildBatch is how many rows one step checks; its corrections are one commit.
const rebuildBatch = 500

// Rebuild rebuilds the tenant's index of dead letters from its runs and cases, with the code
// that keeps the index up to date. It writes only rows that differ, some hundreds per commit,
// each commit with a receipt of the counts. Workers may run meanwhile. If it fails, the steps
// already committed stay done, and a repeated call does the rest. It does nothing where nothing
// differs. progress is called after each step with the totals so far; it may be nil.
// Errors: a *FieldError for bad input (joined, one per field).
func (d DeadLetters) Rebuild(ctx context.Context, reason string, progress func(Rebuilt)) (Rebuilt, error) {
	by := d.by
	if err := errors.Join(validate.KnownID("tenant", by.tenant, 128), validate.Actor(by.actor, reason)); err != nil {
		return Rebuilt{}, err
	}
	if err := by.s.index.CatchUp(ctx); err != nil {
		return Rebuilt{}, err
	}
	var all Rebuilt
	reason = validate.Clean(reason, 1024)
	for place := (search.RebuildCursor{}); !place.Done(); {
		done, next, err := by.s.index.Rebuild(ctx, by.tenant, place, rebuildBatch, func(r search.RebuildResult) receipts.Draft {
			return receipts.Draft{Actor: by.actor, At: by.s.now(), Payload: receipts.Payload{Reason: reason, Changes: rebuildText(r)}}
		})
		if err != nil {
			return all, err
		}
		if all, place = all.sum(done), next; progress != nil {
			progress(all)
		}
	}
	return all, nil
}

func rebuildText(r search.RebuildResult) string {
	return fmt.Sprintf("%d rows inserted, %d changed, %d removed; %d counts changed", r.Added, r.Changed, r.Removed, r.FacetGroups)
}

// Intervals of the projector. Every read of letters brings the index up to date first, so
// the projector may be slow. With long intervals it projects a case once for several changes.
const (
	projectPause = time.Second

	// projectCostFactor bounds the projector's load: the pause after a step is at least this
	// many times the step's duration.
	projectCostFactor = 4
)

// projector keeps the index of letters up to date, while no other process does.
type projector struct {
	index *search.Index
	log   *zap.Logger
}

// run works until ctx ends.
func (p projector) run(ctx context.Context) {
	failures := every.Failures{Log: p.log, Failed: "can't update the index of dead letters, retrying", Again: "the index of dead letters is updated again"}
	for pause := projectPause; casework.Sleep(ctx, pause, nil); {
		begin := time.Now()
		step, err := p.index.Project(ctx)
		if !failures.Note(ctx, err) {
			return
		}
		if pause = max(projectPause, projectCostFactor*time.Since(begin)); step.More {
			pause = projectCostFactor * time.Since(begin)
		}
	}
}
