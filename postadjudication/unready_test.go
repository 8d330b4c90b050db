package postadjudication

import (
	"errors"
	"fmt"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema"
)

// The reason in readiness names no database, trigger or target; the full error does.
func TestWhyADatabaseMayNotBeWorkedOnIsReportedByItsKind(t *testing.T) {
	t.Parallel()
	const named = "shop-7 on 10.1.2.3"
	for reason, err := range map[string]error{
		"this database may not be used":                            fmt.Errorf("%w: %w (%s)", ErrUnsuitable, background.ErrOtherDatabase, named),
		"the schema of the database is of another version":         fmt.Errorf("%w: %s", ErrSchema, named),
		"what protects evidence in the database is off or changed": fmt.Errorf("%w: %w (%s)", ErrUnsuitable, schema.ErrGuardsOff, named),
		"targets have other circuit breakers than in this process": fmt.Errorf("%w: %s", ErrTargets, named),
	} {
		c := &databaseMonitor{}
		if got := c.unready(); got != nil {
			t.Fatalf("without an error: %v", got)
		}
		c.problem.Store(&err)
		var u *Unready
		if got := c.unready(); !errors.As(got, &u) || u.Reason != reason || !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("%v: %q, want %q", got, u.Reason, reason)
		}
	}
}
