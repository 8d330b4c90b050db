package journal

import (
	"errors"
	"testing"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

func TestOnlyContentionErrorsAreBusy(t *testing.T) {
	t.Parallel()
	for code, want := range map[pqerror.Code]bool{"40001": true, "40P01": true, "55P03": true, "57014": false, "23505": false, "08006": false} {
		if err := busyOrWrapped(&pq.Error{Code: code}); errors.Is(err, ErrBusy) != want {
			t.Errorf("%s: %v", code, err)
		}
	}
}
