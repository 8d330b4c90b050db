package postadjudication

import (
	"slices"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// ActionName is something that may be done with a letter.
type ActionName string

// The actions, each by the method of its name.
const (
	ActionFork      ActionName = "fork"
	ActionRetry     ActionName = "retry"     // the job: forks its newest run
	ActionReconcile ActionName = "reconcile" // by a finding that it was executed, or not
	ActionLookup    ActionName = "lookup"    // reconcile by asking the escrow service
	ActionHold      ActionName = "hold"
	ActionRelease   ActionName = "release"
	ActionMark      ActionName = "mark"
	ActionPurge     ActionName = "purge"
)

// GateNoExecutor refuses to ask an escrow service that this process knows nothing of.
const GateNoExecutor Gate = "no_executor"

// Action tells whether something may be done with a letter now, or the rule that
// refuses it. It is decided again, on the letter as it is then, when it is done.
type Action struct {
	Name      ActionName `json:"action"`
	Allowed   bool       `json:"allowed"`
	RefusedBy Gate       `json:"refused_by,omitempty"`
}

// actionsOn judges a letter by the rules that the actions themselves go by.
func (s *Service) actionsOn(f postgres.LetterRow, runs []postgres.Snapshot) []Action {
	at := s.now()
	newest := f.Snapshot
	lineage := lineageOf(runs, f.Run.ID)
	if i := slices.IndexFunc(runs, func(r postgres.Snapshot) bool { return r.Run.ID == lineage[len(lineage)-1] }); i >= 0 {
		newest = runs[i]
	}
	lookup := openLetterGate(f.Snapshot)
	if lookup == "" && s.settlements.executorOf(f.Run.Target) == nil {
		lookup = GateNoExecutor
	}
	var out []Action
	for _, judged := range []struct {
		name ActionName
		gate Gate
	}{
		{ActionFork, s.settlements.forkGate(f.Snapshot, at)}, {ActionRetry, s.settlements.forkGate(newest, at)}, {ActionReconcile, openLetterGate(f.Snapshot)}, {ActionLookup, lookup},
		{ActionHold, annotationGate(f, GateHeld)}, {ActionRelease, annotationGate(f, GateNotHeld)}, {ActionMark, annotationGate(f, "")}, {ActionPurge, purgeGate(f)},
	} {
		out = append(out, Action{Name: judged.name, Allowed: judged.gate == "", RefusedBy: judged.gate})
	}
	return out
}

// annotationGate is the rule that refuses to change a letter's desk: it has to be open, and
// not held, or held.
func annotationGate(f postgres.LetterRow, hold Gate) Gate {
	switch {
	case f.Run.Letter != background.LetterOpen:
		return GateNotOpen
	case hold == GateHeld && f.Annotations.Held, hold == GateNotHeld && !f.Annotations.Held:
		return hold
	}
	return ""
}
