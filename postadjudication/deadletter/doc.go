// Package deadletter reads and changes dead letters: lists, searches with conditions, exports,
// inspections, forks, findings, lookups, holds and marks.
//
// It promises that a list includes everything committed before the call and omits no letter between
// its pages; that a letter has one fork at most; and that a finding or an answer that money moved is
// recorded once.
//
// It must not know what plans, rules and retention are made of: what it needs of them are functions
// that are handed in (Propose, RuleReplays, RetentionOf).
package deadletter
