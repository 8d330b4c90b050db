// Package deadletter reads and changes dead letters: lists, searches with conditions, exports,
// inspections, forks, findings, lookups, holds and marks.
//
// It promises that a list includes everything committed before the call and omits no letter between
// its pages; that a letter has one fork at most; and that a finding or an answer that money moved is
// recorded once. What takes two people is proposed as a plan by a function that is handed in: the
// package must not know plans, rules or retention. It imports casework for every change and
// casestatus for what it shows.
package deadletter
