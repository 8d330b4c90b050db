package postadjudication

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/postgres"
)

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
