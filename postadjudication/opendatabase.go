package postadjudication

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/schema"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

// ErrSchema means that the database's schema is missing, older or newer.
var ErrSchema = schema.ErrSchema

// ErrSubmitRole means that SubmitTx would change a case that exists, as for a higher generation, and that the role of the transaction
// may only open cases (recourse migrate --submit-role): hand the adjudication over by Submit. Nothing was written.
var ErrSubmitRole = schema.ErrSubmitRole

// ErrUnsuitable means that the database can't be used as it is: it is a standby, behind a
// connection pooler in transaction mode, or what protects evidence is off or changed. The error says in one
// line which, and what to do.
var ErrUnsuitable = journal.ErrUnsuitable

// ErrRedis means that the Redis can't be used: it is a Cluster that was configured as a single
// server, it carries another database's notifications, or it is not the one that the other
// processes use. The error says in one line which, and what to do.
var ErrRedis = background.ErrUnsuitableRedis

// openJournal opens a database and checks that it may be used, except with AllowUnsuitable.
func (c *Config) openJournal(ctx context.Context) (_ *journal.Journal, _ *search.Index, installed journal.Installation, err error) {
	journal, err := journal.Open(ctx, c.DatabaseURL)
	if err != nil {
		return nil, nil, installed, err
	}
	journal.Warn = func(err error) { c.Logger.Warn("the journal met an error that failed no call", zap.Error(err)) }
	installed, err = journal.Database.Installation(ctx)
	if err == nil && !c.AllowUnsuitable {
		if err = installed.CheckUsable(); err == nil {
			err = schema.CheckGuards(ctx, journal.Reads())
		}
	}
	if err == nil && c.Executor != nil && !c.AllowUnsuitable {
		err = schema.CheckPrivileges(ctx, journal.Reads())
	}
	if err == nil && installed.ID == "" && c.Executor != nil && !c.AllowUnsuitable {
		installed, err = journal.Database.Install(ctx, c.Demonstration)
	}
	var index *search.Index
	if err == nil {
		index, err = search.Open(c.DatabaseURL, journal)
	}
	if err != nil {
		journal.Close()
		return nil, nil, installed, err
	}
	return journal, index, installed, nil
}

// ErrDemonstration means that a demonstration executor was given a database not marked for
// demonstrations, or a real executor one that is. The error says in one line which.
var ErrDemonstration = errors.New("demonstration")

// checkDemonstration returns why the executor must not run on the database. A database is for
// demonstrations or for real money, never for both.
func (c *Config) checkDemonstration(of journal.Installation) error {
	switch {
	case c.Executor == nil || c.Demonstration == of.Demonstration:
		return nil
	case c.Demonstration:
		return fmt.Errorf("%w: this database was not empty, or a real executor used it, before its first demonstration: use an empty one, or configure the escrow service", ErrDemonstration)
	}
	return fmt.Errorf("%w: this database is for demonstrations, and other escrow services are never called for it: use another database", ErrDemonstration)
}

// MayRun returns the error with which Run would refuse the database, or nil. It wraps
// ErrDemonstration.
func (h *Health) MayRun() error { return h.s.runRefusal }
