// Package retrypolicy decides whether a failed run is tried again, and when.
//
// No other package decides that. A queue's own retry counter counts deliveries only.
// Every answer is a pure function of the policy and the question: the same question
// gets the same answer in any process, at any time.
//
// With the defaults, three attempts are made in all:
//
//	run, wait 25ms, run, wait 50ms, run, exhausted
//
// The zero [Policy] is the default policy. Code that builds a policy relies on
// [Policy.Normalize], which replaces missing and invalid values by the default. Code
// that takes policies from people calls [Policy.Validate] or [Parse], which return an
// error that names the wrong field.
//
// The package is pure: it imports the standard library only, and knows no clock,
// store, log or source of randomness. It must not know what a run does, what a
// settlement is, or what was paid.
package retrypolicy
