// Package policy is the commands that show and change the retry policies of families, and
// the flags of a policy, which forks of dead letters have, too.
//
// A change is read, changed and written under the version that was read: whoever else
// changes it meanwhile is not overwritten. Zero is refused where it would mean the default.
//
// It may import internal/cli/backend, internal/cli/shell, internal/cli/view, cobra and the
// public packages. It knows no dead letter.
package policy
