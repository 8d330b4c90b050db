package backend

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// RunCommandLine returns the command that runs a plan, into the same archive: as its planner, or as
// another person if the plan takes two.
func (o *Flags) RunCommandLine(b bulk.Plan) string {
	line := "recourse dlq bulk run " + b.ID.String() + " --hash " + b.Hash
	if o.Retention.Archive != "" {
		line += " --here --archive " + shell.Quote(o.Retention.Archive)
	}
	switch {
	case b.People < 2:
		return line + o.RepeatFlags(true)
	case o.Server != "":
		return line + o.RepeatFlags(false) // the other person has another key
	}
	return line + o.RepeatFlags(false) + " --actor NAME"
}

// secondPersonAnswer is the JSON result of a command whose plan another person has to run.
type secondPersonAnswer struct {
	Code string    `json:"code"`
	Run  string    `json:"run"` // the command for that person
	Plan bulk.Plan `json:"plan"`
}

// answerSecondPersonError writes the plan of a SecondPersonError and the command for the other
// person, and returns an error with ExitOther. It returns other errors unchanged.
func answerSecondPersonError(sh *shell.Shell, o *Flags, err error) error {
	var second *bulk.SecondPersonError
	if !errors.As(err, &second) {
		return err
	}
	second.Plan.People = max(2, second.Plan.People)
	answered := answerSecondPerson(sh, o, second)
	if second.Because != "" {
		return errors.Join(shell.WithCode(shell.ExitOther, errors.New(second.Code()+": another person than "+second.Plan.Actor+" has to run the plan: "+second.Because)), answered)
	}
	return errors.Join(shell.WithCode(shell.ExitOther, errors.New("the plan was stored, and another person has to run it")), answered)
}

func answerSecondPerson(sh *shell.Shell, o *Flags, second *bulk.SecondPersonError) error {
	if sh.JSON {
		return sh.Answer(secondPersonAnswer{second.Code(), o.RunCommandLine(second.Plan), second.Plan})
	}
	s := sh.Screen()
	view.Plan(s, second.Plan)
	s.Text("Another person has to run it, with this command:")
	s.Command(o.RunCommandLine(second.Plan))
	return s.Err()
}

// noneSelected is the JSON result if nothing was planned.
type noneSelected struct {
	Items     int64                  `json:"items"` // 0
	Scanned   int64                  `json:"scanned,omitempty"`
	Undecided int64                  `json:"undecided,omitempty"`
	Refused   map[refusal.Gate]int64 `json:"refused,omitempty"` // what was left out
}

// AnswerNothing writes that nothing was planned. This is no error, unless the command left letters out.
func AnswerNothing(sh *shell.Shell, nothing *bulk.NothingSelectedError, leftOut map[refusal.Gate]int64) error {
	var err error
	if len(leftOut) > 0 {
		err = errors.New("no plan was stored: all letters that match were left out" + Refusals(leftOut))
	}
	if sh.JSON {
		return errors.Join(err, sh.Answer(noneSelected{0, nothing.Scanned, nothing.Undecided, leftOut}))
	}
	s := sh.Screen()
	if err == nil {
		s.Text("Nothing matches: no plan was stored.")
	}
	if nothing.Undecided > 0 {
		s.Text("The condition could not be evaluated for %d of the %d letters that were scanned.", nothing.Undecided, nothing.Scanned)
	}
	return errors.Join(err, s.Err())
}

// Refusals returns how many items each gate refuses, and what the gates mean; empty for none.
func Refusals(gates map[refusal.Gate]int64) string {
	var all []string
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		all = append(all, fmt.Sprintf("%d by %s: %s", gates[gate], gate, gate.Meaning()))
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, "; ") + ")"
}

// AnswerPlan writes a plan, and the command that runs it.
func AnswerPlan(sh *shell.Shell, o *Flags, b bulk.Plan) error {
	if sh.JSON {
		return sh.Answer(b)
	}
	s := sh.Screen()
	view.Plan(s, b)
	switch {
	case b.State != bulk.Planned:
	case b.Spec.Move == nil && b.Items == 0:
		s.Text("Nothing was done: there are no such %ss.", view.PlanItem(b))
	case b.Spec.Move == nil && b.Ready == 0:
		s.Text("Nothing was done: all of them would be refused. The plan waits for nobody.")
	default:
		who := "To run it:"
		if b.People > 1 {
			who = "Another person has to run it, with this command:"
		}
		s.Text("Nothing was done yet. %s", who)
		s.Command(o.RunCommandLine(b))
	}
	return s.Err()
}
