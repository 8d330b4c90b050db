package casestatus

import (
	"context"
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/receipts"
)

// Lineage is a run with its ancestors and its descendants by fork. The id of any of its runs
// leads to it, so that one id identifies the work however often it is forked.
type Lineage struct {
	Root    background.RunID `json:"root_run_id"`
	Newest  background.RunID `json:"newest_run_id"`
	Replays int              `json:"replay_count"` // number of forks, whoever made them
	Runs    []Status         `json:"runs"`         // oldest first, each the fork of the one before
}

// Lineage returns the lineage that a run of a tenant belongs to. Errors: refusal.ErrNotFound if the
// tenant has no such run.
func (s *Reader) Lineage(ctx context.Context, tenant string, id background.RunID) (Lineage, error) {
	seen, err := s.Applier.OwnRun(ctx, tenant, id)
	if err != nil {
		return Lineage{}, err
	}
	all, err := s.Journal.Cases.Runs(ctx, tenant, seen.Case.ID)
	if err != nil {
		return Lineage{}, err
	}
	statuses, err := s.StatusesOf(ctx, tenant, all)
	if err != nil {
		return Lineage{}, err
	}
	ids := LineageOf(all, id)
	out := Lineage{Root: ids[0], Newest: ids[len(ids)-1], Replays: len(ids) - 1}
	for _, id := range ids {
		if at := slices.IndexFunc(statuses, func(st Status) bool { return st.Run == id }); at >= 0 {
			out.Runs = append(out.Runs, statuses[at])
		}
	}
	return out, nil
}

// RunOfRequest returns the run of a case that a request with an Idempotency-Key made, as its receipts say.
// It is zero if the request made none.
func (s *Reader) RunOfRequest(ctx context.Context, tenant string, of background.CaseID, request string) (background.RunID, error) {
	submitted, err := s.Journal.Receipts.OfCase(ctx, tenant, of, receipts.Submitted)
	if err != nil {
		return background.RunID{}, err
	}
	for _, r := range submitted {
		p, err := r.Known()
		if err != nil {
			return background.RunID{}, err
		}
		if p.RequestID == request {
			return r.Run, nil
		}
	}
	return background.RunID{}, nil
}

// LineageOf returns the ids of a run's lineage, the oldest first. A letter has at most one
// fork, so the lineage is a line. The run must be one of all.
func LineageOf(all []journal.Snapshot, id background.RunID) []background.RunID {
	parents, forks := map[background.RunID]background.RunID{}, map[background.RunID]background.RunID{}
	for _, s := range all {
		if !s.Run.Parent.IsZero() {
			parents[s.Run.ID], forks[s.Run.Parent] = s.Run.Parent, s.Run.ID
		}
	}
	line := []background.RunID{id}
	for p, is := parents[id]; is; p, is = parents[p] {
		line = append(line, p)
	}
	slices.Reverse(line)
	for f, is := forks[id]; is; f, is = forks[f] {
		line = append(line, f)
	}
	return line
}

// StatusesOf returns the runs of one case, each with its relatives.
func (s *Reader) StatusesOf(ctx context.Context, tenant string, all []journal.Snapshot) ([]Status, error) {
	var letters []background.RunID
	for _, snap := range all {
		if snap.Run.Letter != background.NoLetter {
			letters = append(letters, snap.Run.ID)
		}
	}
	handlers, err := s.Journal.Letters.Handlers(ctx, tenant, letters)
	if err != nil {
		return nil, err
	}
	var forked []background.RunID
	for _, snap := range all {
		if !snap.Run.Parent.IsZero() || snap.Run.Letter == background.LetterForked {
			forked = append(forked, snap.Run.ID)
		}
	}
	byRules, err := s.RuleReplays(ctx, tenant, forked)
	if err != nil {
		return nil, err
	}
	out := make([]Status, len(all))
	for i, snap := range all {
		out[i] = StatusOf(snap.Run)
		out[i].RuleReplays = byRules[snap.Run.ID]
		out[i].Handler = handlers[snap.Run.ID]
		lineage := LineageOf(all, snap.Run.ID)
		at := slices.Index(lineage, snap.Run.ID)
		out[i].Parents, out[i].Forks, out[i].Replays = slices.Clip(lineage[:at]), lineage[at+1:], len(lineage)-1
	}
	return out, nil
}

// statusWithRelatives returns a run's status with its relatives. Most runs have none, and
// need no further query.
func (s *Reader) statusWithRelatives(ctx context.Context, snap journal.Snapshot) (Status, error) {
	if snap.Run.Parent.IsZero() && snap.Run.Letter == background.NoLetter {
		return StatusOf(snap.Run), nil
	}
	all, err := s.Journal.Cases.Runs(ctx, snap.Run.Tenant, snap.Case.ID)
	if err != nil {
		return Status{}, err
	}
	statuses, err := s.StatusesOf(ctx, snap.Run.Tenant, all)
	at := slices.IndexFunc(statuses, func(st Status) bool { return st.Run == snap.Run.ID })
	if err != nil {
		return Status{}, err
	}
	return statuses[at], nil
}
