// Package retrypolicy decides whether a failed run is tried again, and when.
//
// It is the one place where that is decided. A queue's own retry counter means
// delivery only. Every answer is a pure function of the policy and the question:
// the same question gets the same answer in any process, at any time.
//
// With the defaults, three attempts are made in all:
//
//	run, wait 25ms, run, wait 50ms, run, exhausted
//
// The zero [Policy] is the default policy. Code that builds a policy relies on
// [Policy.Normalize], which turns what is not given or has no meaning into the
// default. A door through which people hand in policies calls [Policy.Validate]
// or [Parse], which name the field that is wrong instead of mending it.
//
// The package is pure: it imports the standard library only, and knows no clock,
// store, log or source of randomness. It must not know what a run does, what a
// settlement is, or what was paid.
package retrypolicy
