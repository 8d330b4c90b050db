package backend

import (
	"errors"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/cli/view"
	"github.com/recourse-dev/recourse/postadjudication"
)

// runCommandLine lets a plan run, in the name of who planned it or, where it takes another person, of
// that one.
func (o *Flags) runCommandLine(b postadjudication.Bulk) string {
	line := "recourse dlq bulk run " + b.ID.String() + " --hash " + b.Hash
	switch {
	case b.People < 2:
		return line + o.RepeatFlags(true)
	case o.Server != "":
		return line + o.RepeatFlags(false) // by another key
	}
	return line + o.RepeatFlags(false) + " --actor NAME"
}

// secondPersonAnswer is the answer of a command that has planned what somebody else has to let run.
type secondPersonAnswer struct {
	Code string                `json:"code"`
	Run  string                `json:"run"` // what that person says
	Plan postadjudication.Bulk `json:"plan"`
}

// answerSecondPersonError tells of a plan that somebody else has to let run, and what that person says.
func answerSecondPersonError(sh *shell.Shell, o *Flags, err error) error {
	var second *postadjudication.SecondPersonError
	if !errors.As(err, &second) {
		return err
	}
	second.Plan.People = max(2, second.Plan.People)
	answered := answerSecondPerson(sh, o, second)
	if second.Because != "" {
		return errors.Join(shell.WithCode(shell.ExitOther, errors.New("somebody else than "+second.Plan.Actor+" has to let the plan run: "+second.Because)), answered)
	}
	return errors.Join(shell.WithCode(shell.ExitOther, errors.New("it is planned, and somebody else has to let it run")), answered)
}

func answerSecondPerson(sh *shell.Shell, o *Flags, second *postadjudication.SecondPersonError) error {
	if sh.JSON {
		return sh.Answer(secondPersonAnswer{second.Code(), o.runCommandLine(second.Plan), second.Plan})
	}
	s := sh.Screen()
	view.Plan(s, second.Plan)
	s.Text("It takes another person to let it run, who says:")
	s.Command(o.runCommandLine(second.Plan))
	return s.Err()
}

// noneSelected is the answer where nothing was planned.
type noneSelected struct {
	Items     int64 `json:"items"` // 0
	Scanned   int64 `json:"scanned,omitempty"`
	Undecided int64 `json:"undecided,omitempty"`
}

// AnswerNothing is the answer of commands that plan, where nothing is what was asked for: all is
// well.
func AnswerNothing(sh *shell.Shell, nothing *postadjudication.NothingSelectedError) error {
	if sh.JSON {
		return sh.Answer(noneSelected{0, nothing.Scanned, nothing.Undecided})
	}
	s := sh.Screen()
	s.Text("Nothing was done, and no plan was made: there is nothing that was asked for.")
	if nothing.Undecided > 0 {
		s.Text("The condition could not be told of %d of the %d letters that were looked at.", nothing.Undecided, nothing.Scanned)
	}
	return s.Err()
}

// AnswerPlan is the answer of commands that leave one plan.
func AnswerPlan(sh *shell.Shell, o *Flags, b postadjudication.Bulk) error {
	if sh.JSON {
		return sh.Answer(b)
	}
	s := sh.Screen()
	view.Plan(s, b)
	switch {
	case b.State != postadjudication.BulkPlanned:
	case b.Items == 0:
		s.Text("Nothing was done: there are no such %ss.", view.PlanItem(b))
	case b.Ready == 0:
		s.Text("Nothing was done: all of them would be refused.")
	default:
		who := "To let it run:"
		if b.People > 1 {
			who = "It takes another person to let it run, who says:"
		}
		s.Text("Nothing was done yet. %s", who)
		s.Command(o.runCommandLine(b))
	}
	return s.Err()
}
