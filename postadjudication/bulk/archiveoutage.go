package bulk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/plans"
)

// archiveOutage measures for how long the archive has taken no file of a plan. It is for the tries
// of one chunk, whose commits run concurrently.
type archiveOutage struct {
	limit time.Duration

	mu   sync.Mutex
	last time.Time // when the archive last took a file; before the first, when the work began
	took bool      // a file of the chunk
	err  error     // of the last file of this try; nil: it was taken
}

func newArchiveOutage(limit time.Duration) *archiveOutage {
	return &archiveOutage{limit: limit, last: time.Now()}
}

// begin begins a try.
func (o *archiveOutage) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = nil
}

// tried records a write, and reports whether the try may continue: see casework.Batch.
func (o *archiveOutage) tried(_ int, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(err, casework.ErrNotArchived) {
		o.err = err
		return time.Since(o.last) < o.limit
	}
	o.last, o.took, o.err = time.Now(), true, nil
	return true
}

// state returns the error of the archive in this try, and whether it took no file for the limit.
func (o *archiveOutage) state() (err error, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err, o.err != nil && time.Since(o.last) >= o.limit
}

// archiveTimeLimit is for how long the archive may take no file before a purge is paused.
const archiveTimeLimit = time.Minute

// pauseForArchive pauses a plan whose archive takes no file, with the archive's error as the
// reason. Its items have no outcome and are tried again once somebody resumes it.
func (w *planWork) pauseForArchive(ctx context.Context, outage error) error {
	return w.pause(ctx, fmt.Sprintf("for %s no file was archived: %v", w.archiveLimit, outage))
}

// lacksArchive reports whether a plan needs an archive and this process has none.
func (p *Planner) lacksArchive(s Spec) bool { return s.Archived && p.applier.Archive == nil }

// pause pauses a plan that this process can't work on, without a person.
func (w *planWork) pause(ctx context.Context, reason string) error {
	w.log.Error("paused a purge: "+reason, zap.Stringer("bulk", w.plan.ID))
	_, err := w.change(ctx, w.plan.Tenant, w.plan.ID, systemActor, reason, func(b *plans.Plan, _ bool) error {
		if b.State != Running {
			return journal.ErrNoChange
		}
		b.State = Paused
		return nil
	})
	return err
}
