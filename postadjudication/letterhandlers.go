package postadjudication

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// LetterHandler says what runs when a run of a family dies: a function, or another family.
// Either is a plain task with the retry key "dlq:<run id>" that is committed together with the
// death. It exists exactly once, survives any crash of the process, is retried by its policy,
// and is linked with the letter both ways (Status). A handler that fails permanently is a dead
// letter without a handler, so there is no loop. The letter stays open whatever its handler
// returns: it is closed as any other, by a fork, a finding, a higher generation or a purge.
//
// Deaths with handlers are batched only with each other. All processes of a service must
// configure the same handlers.
type LetterHandler struct {
	Handle    func(ctx context.Context, l DeadLetter) background.Result // runs as the family "<family>-dlq"
	Policy    retrypolicy.Policy                                        // of Handle
	TimeLimit time.Duration                                             // of Handle, per attempt; 0: 30s
	Family    string                                                    // instead of Handle: another plain family; see ReadDeadLetter
}

// DefaultHandlerFamily is the family that runs Config.OnAnyDeath.Handle.
const DefaultHandlerFamily = "dlq"

func (h LetterHandler) isSet() bool { return h.Handle != nil || h.Family != "" }

// family returns the family that runs the handler's function.
func (h LetterHandler) family(name string) PlainFamily {
	return PlainFamily{Name: name, Policy: h.Policy, TimeLimit: h.TimeLimit, Handle: func(ctx context.Context, a background.Attempt) background.Result {
		l, err := ReadDeadLetter(a)
		if err != nil {
			return background.Result{Class: escrow.NotExecuted, Failure: &background.Failure{Type: "letter.unreadable", Message: err.Error()}}
		}
		return h.Handle(ctx, l)
	}}
}

// withHandlers returns the families including those of handlers, and the handler family for
// each family.
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
		case h.Handle != nil && h.Policy.OnExhaustion == retrypolicy.Discard:
			wrong = "a run of it that fails for good is always kept as a dead letter"
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
	every := append([]PlainFamily{{Name: casework.Family, OnDeath: c.OnDeath}}, c.Families...)
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
	if c.Jobs {
		every = append(every, PlainFamily{Name: jobs.Family})
	}
	for _, p := range every {
		if handlerFor[p.Name] == "" && p.Name != handlerFor[""] {
			handlerFor[p.Name] = handlerFor[""]
		}
	}
	delete(handlerFor, "")
	return families, handlerFor, nil
}

// openHandler returns the change that opens the case of the run that handles a dead letter.
func (s *submissions) openHandler(ctx context.Context, family *casework.PlainFamily, dead journal.Snapshot) (journal.Change, error) {
	payload, err := json.Marshal(deadLetterOf(dead))
	if err != nil {
		return journal.Change{}, err
	}
	return s.taskSubmission(ctx, family, Task{
		Tenant: dead.Run.Tenant, Family: family.FamilyName, RetryKey: casework.HandlerKeyPrefix + dead.Run.ID.String(), Payload: payload, Actor: "system:dead-letter",
	}).Open()
}

// DeadLetter is a run that died, as passed to its handler and to subscribers. Its texts are
// redacted.
type DeadLetter struct {
	Run         background.RunID  `json:"run_id"`
	Case        background.CaseID `json:"case_id"`
	Tenant      string            `json:"tenant"`
	Family      string            `json:"family"`
	RetryKey    string            `json:"retry_key"`
	Transaction string            `json:"transaction_receipt_id,omitempty"` // settlements only
	Attempts    int               `json:"attempts"`
	ReasonCode  string            `json:"reason_code"`
	Class       background.Class  `json:"outcome_class,omitempty"`
	Error       receipts.Failure  `json:"error,omitzero"` // last error, without its stack
	DeadAt      time.Time         `json:"dead_lettered_at"`
	Handler     background.RunID  `json:"-"` // the run that handles it; for subscribers
	Gap         *Gap              `json:"-"` // in place of a death, for subscribers: see OnDeadLetter. Its bounds are numbers of all tenants' order
}

// ReadDeadLetter returns the letter that an attempt handles. It serves families that are
// configured as handlers of others.
func ReadDeadLetter(a background.Attempt) (DeadLetter, error) {
	var l DeadLetter
	if _, is := casework.LetterHandledBy(a.Run); !is {
		return l, fmt.Errorf("postadjudication: run %s handles no dead letter", a.Run.ID)
	}
	err := json.Unmarshal(a.Run.Payload, &l)
	return l, err
}

// deadLetterOf returns the letter of a run that has just died.
func deadLetterOf(s journal.Snapshot) DeadLetter {
	r := s.Run
	l := DeadLetter{
		Run: r.ID, Case: r.Case, Tenant: r.Tenant, Family: r.Family, RetryKey: r.RetryKey, Attempts: r.Attempt, ReasonCode: r.Reason, Class: r.Class, DeadAt: r.DeadAt,
	}
	if s.Case.Kind == journal.KindSettlement {
		l.Transaction = s.Case.Subject
	}
	if r.Failure != nil {
		l.Error = receipts.Failure{Type: r.Failure.Type, Code: r.Failure.Code, Message: r.Failure.Message}
	}
	return l
}

// deadLetterFromReceipt reads a letter from the receipt of its death. With an error the letter has what is
// known without the body of the receipt.
func deadLetterFromReceipt(d journal.DeathReceipt) (DeadLetter, error) {
	l := DeadLetter{Run: d.Run, Case: d.Case, Tenant: d.Tenant, Family: d.Family, RetryKey: d.RetryKey, DeadAt: d.At}
	if d.Kind == journal.KindSettlement {
		l.Transaction = d.Subject
	}
	p, err := d.Known()
	if err != nil {
		return l, err
	}
	l.Attempts, l.ReasonCode, l.Class, l.DeadAt, l.Handler = p.Attempts, p.ReasonCode, background.Class(p.OutcomeClass), p.DeadLetteredAt, p.NewRun
	l.Error = receipts.Failure{Type: p.Error.Type, Code: p.Error.Code, Message: p.Error.Message}
	return l, nil
}
