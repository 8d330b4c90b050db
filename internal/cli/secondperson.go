package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication"
)

// selfDeclared lets the receipts of a command say that its actor is whoever typed the name. A
// server's are those of its callers and of the program, and what is handed over names nobody.
func selfDeclared(cmd *cobra.Command) {
	switch cmd.Name() {
	case "serve", "demo", "submit":
		return
	}
	cmd.SetContext(postadjudication.WithCaller(cmd.Context(), postadjudication.Caller{SelfDeclared: true}))
}

// runLine lets a plan run, in the name of who planned it or, where it takes another person, of
// that one.
func (o *office) runLine(b postadjudication.Bulk) string {
	line := "recourse dlq bulk run " + b.ID.String() + " --hash " + b.Hash
	switch {
	case b.People < 2:
		return line + o.again(true)
	case o.server != "":
		return line + o.again(false) // by another key
	}
	return line + o.again(false) + " --actor NAME"
}

// forOther is the answer of a command that has planned what somebody else has to let run.
type forOther struct {
	Code string                `json:"code"`
	Run  string                `json:"run"` // what that person says
	Plan postadjudication.Bulk `json:"plan"`
}

// secondPerson tells of a plan that somebody else has to let run, and what that person says.
func secondPerson(sh *shell.Shell, o *office, err error) error {
	var second *postadjudication.SecondPersonError
	if !errors.As(err, &second) {
		return err
	}
	second.Plan.People = max(2, second.Plan.People)
	told := tellOther(sh, o, second)
	if second.Because != "" {
		return errors.Join(shell.WithCode(shell.ExitOther, errors.New("somebody else than "+second.Plan.Actor+" has to let the plan run: "+second.Because)), told)
	}
	return errors.Join(shell.WithCode(shell.ExitOther, errors.New("it is planned, and somebody else has to let it run")), told)
}

func tellOther(sh *shell.Shell, o *office, second *postadjudication.SecondPersonError) error {
	if sh.JSON {
		return sh.Answer(forOther{second.Code(), o.runLine(second.Plan), second.Plan})
	}
	s := sh.Screen()
	showBulk(s, second.Plan)
	s.Text("It takes another person to let it run, who says:")
	s.Command(o.runLine(second.Plan))
	return s.Err()
}
