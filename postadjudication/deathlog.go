package postadjudication

import (
	"cmp"
	"strings"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/settlement"
)

// deathHook returns the function to call after each commit in which a run dies. It logs the death,
// wakes subscribers and calls then.
func (s *Service) deathHook(then func(letter background.Run)) func(background.Run) {
	return func(dead background.Run) {
		s.subscribers.wakeAll()
		s.log.Warn("a run was dead-lettered", deathFields(&dead)...)
		if then != nil {
			then(dead)
		}
	}
}

// deathFields are what the log says of a death: what a customer or a bank quotes, why, and what comes next.
func deathFields(dead *background.Run) []zap.Field {
	failed := cmp.Or(dead.Failure, &background.Failure{})
	out := []zap.Field{
		zap.Stringer("run", dead.ID), zap.Stringer("case", dead.Case), zap.String("tenant", dead.Tenant), zap.String("family", dead.Family), zap.String("reason", dead.Reason),
		zap.String("class", string(dead.Class)), zap.String("error_type", failed.Type), zap.String("error_code", failed.Code),
	}
	next := "retry it once its cause is mended, or purge it"
	if dead.MovesMoney() {
		transaction := dead.RetryKey[:max(0, strings.LastIndexByte(dead.RetryKey, ':'))]
		out = append(out, zap.String("transaction", transaction))
		next = "fork it once its cause is mended, or record a finding"
	}
	if t := dead.Terms; dead.MovesMoney() && t != nil && t.Currency != "" {
		out = append(out, zap.String("outcome", t.Outcome), zap.String("amount", settlement.Money{Minor: t.Amount, Currency: t.Currency}.String()))
	}
	if dead.MovesMoney() && dead.UnknownOpen > 0 {
		next = "a lookup or a finding must say what became of the money, before a fork or another decision"
	}
	return append(out, zap.String("next", next))
}
