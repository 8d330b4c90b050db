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
	for _, m := range moments {
		killAt(t, failpoint.Point(m, string(receipts.DeadLettered)), transitions[failpoint.LetterHandler])
	}
}
