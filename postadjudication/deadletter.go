package postadjudication

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// DeadLetter is a run that died, as its handler and its subscribers are told of it.
// Its texts are redacted.
type DeadLetter struct {
	Run         background.RunID  `json:"run_id"`
	Case        background.CaseID `json:"case_id"`
	Tenant      string            `json:"tenant"`
	Family      string            `json:"family"`
	RetryKey    string            `json:"retry_key"`
	Transaction string            `json:"transaction_receipt_id,omitempty"` // of a settlement
	Attempts    int               `json:"attempts"`
	ReasonCode  string            `json:"reason_code"`
	Class       background.Class  `json:"outcome_class,omitempty"`
	Error       receipts.Failure  `json:"error,omitzero"` // the last one, without its stack
	DeadAt      time.Time         `json:"dead_lettered_at"`
	Handler     background.RunID  `json:"-"` // the run that handles it, as subscribers are told
}

// ReadDeadLetter reads the letter that an attempt is to handle: for a family that is
// named as the handler of others.
func ReadDeadLetter(a background.Attempt) (DeadLetter, error) {
	var l DeadLetter
	if _, is := handledRun(a.Run); !is {
		return l, fmt.Errorf("postadjudication: run %s handles no dead letter", a.Run.ID)
	}
	err := json.Unmarshal(a.Run.Payload, &l)
	return l, err
}

// deadLetterOf is the letter of a run that has just died.
func deadLetterOf(s postgres.Snapshot) DeadLetter {
	r := s.Run
	l := DeadLetter{
		Run: r.ID, Case: r.Case, Tenant: r.Tenant, Family: r.Family, RetryKey: r.RetryKey, Attempts: r.Attempt, ReasonCode: r.Reason, Class: r.Class, DeadAt: r.DeadAt,
	}
	if s.Case.Kind == postgres.KindSettlement {
		l.Transaction = s.Case.Subject
	}
	if r.Failure != nil {
		l.Error = receipts.Failure{Type: r.Failure.Type, Code: r.Failure.Code, Message: r.Failure.Message}
	}
	return l
}

// deadLetterFromReceipt reads a letter off the receipt of its death.
func deadLetterFromReceipt(d postgres.DeathEvent) (DeadLetter, error) {
	p, err := d.Known()
	if err != nil {
		return DeadLetter{}, err
	}
	l := DeadLetter{
		Run: d.Run, Case: d.Case, Tenant: d.Tenant, Family: d.Family, RetryKey: d.RetryKey, Attempts: p.Attempts, ReasonCode: p.ReasonCode,
		Class: background.Class(p.OutcomeClass), DeadAt: p.DeadLetteredAt, Handler: p.NewRun,
		Error: receipts.Failure{Type: p.Error.Type, Code: p.Error.Code, Message: p.Error.Message},
	}
	if d.Kind == postgres.KindSettlement {
		l.Transaction = d.Subject
	}
	return l, nil
}
