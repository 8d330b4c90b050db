// Package report counts and groups dead letters: analyses, statistics and groups of one cause.
//
// It promises that the counts and sums of a report are exact and of one moment. It changes nothing,
// reads the index that package deadletter reads, and must not know plans, rules or retention.
package report
