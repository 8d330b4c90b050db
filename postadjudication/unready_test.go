package postadjudication

import (
	"errors"
	"fmt"
	"testing"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// What readiness tells whoever asks names no database, trigger or target; the error in full does.
func TestWhyADatabaseMayNotBeWorkedOnIsReportedByItsKind(t *testing.T) {
	t.Parallel()
	const named = "shop-7 on 10.1.2.3"
	for reason, err := range map[string]error{
		"this database may not be worked on":                                  fmt.Errorf("%w: %w (%s)", ErrUnsuitable, background.ErrOtherDatabase, named),
		"the schema of the database is not that of this program":              fmt.Errorf("%w: %s", ErrSchema, named),
		"triggers of the database are not in force":                           fmt.Errorf("%w: %w (%s)", ErrUnsuitable, postgres.ErrTriggersOff, named),
		"targets go by other circuit breakers than this process has for them": fmt.Errorf("%w: %s", ErrTargets, named),
	} {
		c := &databaseMonitor{}
		if got := c.unready(); got != nil {
			t.Fatalf("with nothing in the way: %v", got)
		}
		c.problem.Store(&err)
		var u *Unready
		if got := c.unready(); !errors.As(got, &u) || u.Reason != reason || !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("%v: %q, want %q", got, u.Reason, reason)
		}
	}
}
