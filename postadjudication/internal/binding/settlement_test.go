package binding

import (
	"testing"

	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// Receipts of older versions, in which a cancel freed the reservation, don't mention it and are
// read as before.
func TestOlderReceiptsOfCancelsAndClosingsFreedTheReservation(t *testing.T) {
	t.Parallel()
	var f Settlement
	for kept, reserved := range map[bool]int64{false: 0, true: 10} {
		for subtype, from := range map[receipts.Subtype]settlement.Status{receipts.Cancelled: settlement.InProgress, receipts.Reconciled: settlement.DisputeReady} {
			e, ok := f.event(receipts.Receipt{Subtype: subtype}, receipts.Payload{ReservationKept: kept, LetterClosed: true})
			s, _, err := settlement.Apply(settlement.State{Progression: from, Generation: 1, Asked: 10, Reserved: 10}, e)
			if !ok || err != nil || s.Reserved != reserved || s.Progression == from {
				t.Errorf("%s, kept %t: %+v, %v", subtype, kept, s, err)
			}
		}
	}
}
