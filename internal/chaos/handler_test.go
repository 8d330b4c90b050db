package main

import (
	"testing"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/receipts"
)

// A worker that is killed inside the transaction of a death, before or after the death
// is written and before the handler has begun, leaves neither. Its successor leaves both,
// once.
func TestAKillInsideADeathThatBeginsAHandlerIsAllOrNothing(t *testing.T) {
	t.Parallel()
	killAt(t, string(receipts.DeadLettered), moments, transitions[failpoint.LetterHandler])
}
