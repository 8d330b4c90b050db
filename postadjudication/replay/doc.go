// Package replay keeps the rules of tenants and applies them: a rule forks or marks the open dead
// letters that its filter selects, a time after their death.
//
//	rules ─▶ letters found ─▶ read again ─▶ gates ─▶ fork or mark, counted in the same commit
//
// It promises that a rule forks a letter only if it is certain that nothing was executed; that a
// rule replays a letter with its ancestors no more often than the rule says, in all processes
// together; that no rule acts after the commit that changed or deleted it; and that every change of
// a rule has a receipt.
//
// It must not know plans, retention and the service.
package replay
