// Package backgroundtest has a journal in memory for tests of package background.
//
// It moves runs by Move.Apply, as the real journal does, and is nastier than the
// real one: one write in ten fails for no reason, half of these after it took
// effect.
//
// It imports background and receipts only. Programs must not import it.
package backgroundtest
