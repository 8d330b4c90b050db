package casework

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// Permission returns whether the caller of a request may do something with a run, for some runs of a tenant: Permitted and
// Replaceable.
type Permission func(ctx context.Context, j *journal.Journal, tenant string, ids []background.RunID) (may func(background.RunID) bool, err error)

// Permitted returns whether the caller of a request may read what a run of a tenant did, for the given runs. A caller with
// ReadsOnlyOf may not read what belongs to no run.
func Permitted(ctx context.Context, j *journal.Journal, tenant string, ids []background.RunID) (may func(background.RunID) bool, err error) {
	return submittedBy(ctx, j, tenant, CallerOf(ctx).ReadsOnlyOf, ids)
}

// Replaceable returns whether the caller of a request may have a unique job replace a job, for the runs of some jobs of a
// tenant.
func Replaceable(ctx context.Context, j *journal.Journal, tenant string, ids []background.RunID) (may func(background.RunID) bool, err error) {
	return submittedBy(ctx, j, tenant, CallerOf(ctx).ReplacesOnlyOf, ids)
}

// submittedBy returns whether a principal submitted a run, for the given runs; true for each if principal is empty.
func submittedBy(ctx context.Context, j *journal.Journal, tenant, principal string, ids []background.RunID) (is func(background.RunID) bool, err error) {
	if principal == "" {
		return func(background.RunID) bool { return true }, nil
	}
	own, err := j.Cases.SubmittedBy(ctx, tenant, principal, ids)
	return func(id background.RunID) bool { return own[id] }, err
}

// PermittedRuns returns the runs that the caller of a request may read, of some of one case or lineage; refusal.ErrNotFound
// if it may read none. It may change the slice.
func PermittedRuns(ctx context.Context, j *journal.Journal, tenant string, all ...journal.Snapshot) ([]journal.Snapshot, error) {
	ids := make([]background.RunID, len(all))
	for i := range all {
		ids[i] = all[i].Run.ID
	}
	may, err := Permitted(ctx, j, tenant, ids)
	if err != nil {
		return nil, err
	}
	kept := all[:0]
	for i := range all {
		if may(all[i].Run.ID) {
			kept = append(kept, all[i])
		}
	}
	if len(kept) == 0 {
		return nil, refusal.ErrNotFound
	}
	return kept, nil
}
