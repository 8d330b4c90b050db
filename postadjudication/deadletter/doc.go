// Package deadletter reads and changes dead letters: lists, searches with conditions, exports,
// inspections, forks, findings, lookups, holds and marks.
//
// It promises that a list includes everything committed before the call and omits no letter between
// its pages; that a letter has one fork at most; and that a finding or an answer that money moved is
// recorded once.
//
// May import casework for every change, casestatus for what it shows, journal/search, the engine and
// the pure packages, escrow, refusal, validate, and internal/access, sheet and tenantlimit. It must not
// import what plans, rules and retention are made of: what it needs of them are functions that are
// handed in (Propose, RuleReplays, RetentionOf).
package deadletter
