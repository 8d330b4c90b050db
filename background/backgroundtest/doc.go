// Package backgroundtest has an in-memory journal for tests of package background.
//
// It changes runs by Transition.Apply, as the real journal does. Unlike the real one, one write
// in ten fails without cause, half of these after they took effect.
//
// Programs must not import it.
package backgroundtest
