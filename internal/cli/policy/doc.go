// Package policy is the commands that show and change the retry policies of families, and the
// flags of a policy, which forks of dead letters share.
//
// A change is written under the version that was read, so it never overwrites a concurrent
// change. Zero is an error if it would mean the default.
//
// It knows nothing of dead letters.
package policy
