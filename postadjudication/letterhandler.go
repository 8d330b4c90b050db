package postadjudication

import (
	"context"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// LetterHandler says what is run when a run of a family dies: a function of its own,
// or another family. Either is a plain task with the retry key "dlq:<run id>", which
// begins in the very commit in which the run dies: it exists exactly once, survives
// whatever happens to the process, is tried again by its policy, and is linked with
// the letter both ways (Status). A handler that fails for good is a dead letter
// itself, and has no handler: there is no loop. The letter stays open whatever its
// handler does; closing it is a person's, or Fork's.
//
// Deaths with handlers share transactions among themselves only. All processes of a
// service have to name the same handlers.
type LetterHandler struct {
	Handle    func(ctx context.Context, l DeadLetter) background.Result // its own; run as the family "<family>-dlq"
	Policy    retrypolicy.Policy                                        // of Handle
	TimeLimit time.Duration                                             // of Handle, per attempt; 30s when 0
	Family    string                                                    // or another plain family; see ReadDeadLetter
}

// DefaultHandlerFamily is the family that runs Config.OnAnyDeath.Handle.
const DefaultHandlerFamily = "dlq"

func (h LetterHandler) isSet() bool { return h.Handle != nil || h.Family != "" }

// family is the family that runs a handler's own function.
func (h LetterHandler) family(name string) PlainFamily {
	return PlainFamily{Name: name, Policy: h.Policy, TimeLimit: h.TimeLimit, Handle: func(ctx context.Context, a background.Attempt) background.Result {
		l, err := ReadDeadLetter(a)
		if err != nil {
			return background.Result{Class: NotExecuted, Failure: &background.Failure{Type: "letter.unreadable", Message: err.Error()}}
		}
		return h.Handle(ctx, l)
	}}
}

// withHandlers gives the families with those that handlers need, and which family
// handles whose letters.
func (c Config) withHandlers() (families []PlainFamily, handlerFor map[string]string, err error) {
	families, handlerFor = append(families, c.Families...), map[string]string{}
	known := map[string]bool{}
	for _, p := range c.Families {
		known[p.Name] = true
	}
	add := func(family, ownName string, h LetterHandler) error {
		wrong := ""
		switch {
		case h.Handle != nil && h.Family != "":
			wrong = fmt.Sprintf("there are two, a function and family %q; name one", h.Family)
		case h.Handle != nil && (known[ownName] || !familyNamePattern.MatchString(ownName)):
			wrong = fmt.Sprintf("it would be family %q, which is taken or too long a name", ownName)
		case h.Handle != nil:
			h.Family, known[ownName], families = ownName, true, append(families, h.family(ownName))
		case h.Family == family:
			wrong = "a family can't be its own"
		case !known[h.Family]:
			wrong = fmt.Sprintf("there is no plain family %q", h.Family)
		}
		if handlerFor[family] = h.Family; wrong == "" {
			return nil
		}
		if family == "" {
			family = "any family that names none"
		}
		return fmt.Errorf("postadjudication: the handler of the dead letters of %s: %s", family, wrong)
	}
	every := append([]PlainFamily{{Name: Family, OnDeath: c.OnDeath}}, c.Families...)
	for _, p := range every {
		if p.OnDeath.isSet() {
			if err := add(p.Name, p.Name+"-dlq", p.OnDeath); err != nil {
				return nil, nil, err
			}
		}
	}
	if !c.OnAnyDeath.isSet() {
		return families, handlerFor, nil
	}
	if err := add("", DefaultHandlerFamily, c.OnAnyDeath); err != nil {
		return nil, nil, err
	}
	for _, p := range every {
		if handlerFor[p.Name] == "" && p.Name != handlerFor[""] {
			handlerFor[p.Name] = handlerFor[""]
		}
	}
	delete(handlerFor, "")
	return families, handlerFor, nil
}
