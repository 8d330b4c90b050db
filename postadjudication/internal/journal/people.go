package journal

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/pg"
	"github.com/recourse-dev/recourse/receipts"
)

// PeopleLog has the receipts of changes to the number of people required.
const PeopleLog OperationLog = stored.PeopleLog

// People is the number of people required to state a finding or free money of a tenant by
// hand.
type People struct {
	Tenant string    `db:"tenant"`
	People int       `db:"people"`
	Actor  string    `db:"actor"` // who set it; empty if it was never set
	Reason string    `db:"reason"`
	At     time.Time `db:"at"`
}

// DefaultPeople is the number required unless another was set.
const DefaultPeople = stored.DefaultPeople

const peopleSQL = `SELECT tenant, people, actor, reason, at FROM recourse.people `

// PeopleStore keeps how many people a decision about money by hand takes, for each tenant.
type PeopleStore struct {
	*shared
}

// Get returns the number in force for a tenant.
func (p *PeopleStore) Get(ctx context.Context, tenant string) (People, error) {
	found, err := p.selectPeople(ctx, `WHERE tenant = $1`, tenant)
	if err != nil || len(found) == 0 {
		return People{Tenant: tenant, People: DefaultPeople}, err
	}
	return found[0], nil
}

// OnePersonTenants lists the tenants for whose money one person is enough.
func (p *PeopleStore) OnePersonTenants(ctx context.Context) ([]People, error) {
	return p.selectPeople(ctx, `WHERE people = 1 ORDER BY tenant`)
}

func (p *PeopleStore) selectPeople(ctx context.Context, where string, args ...any) (found []People, err error) {
	ctx, cancel := context.WithTimeout(ctx, pg.StatementTimeout)
	defer cancel()
	if err := p.readDB.SelectContext(ctx, &found, peopleSQL+where, args...); err != nil {
		return nil, pg.Wrap(err)
	}
	for i := range found {
		found[i].At = found[i].At.UTC()
	}
	return found, nil
}

// Set changes the number, and writes the receipt in the same commit. If the number is the same already, or somebody
// set it after unchangedSince, unless that is zero, nothing is written. It returns what is in force.
func (p *PeopleStore) Set(ctx context.Context, next People, unchangedSince time.Time, draft receipts.Draft) (now People, err error) {
	draft.Subtype = receipts.PeopleChanged
	err = p.InSlowPathTx(ctx, failpoint.ApprovalsRequired, func(ctx context.Context, tx *sql.Tx) error {
		set, err := tx.ExecContext(ctx, `INSERT INTO recourse.people AS p (tenant, people, actor, reason, at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (tenant) DO UPDATE SET people = excluded.people, actor = excluded.actor, reason = excluded.reason, at = excluded.at
			WHERE p.people <> excluded.people AND ($6::timestamptz IS NULL OR p.at <= $6)`, next.Tenant, next.People, next.Actor, next.Reason, next.At, nullTime(unchangedSince))
		if err != nil {
			return err
		}
		n, err := set.RowsAffected()
		switch {
		case err != nil:
			return err
		case n == 0:
			return ErrNoChange
		}
		return AppendOperation(ctx, tx, next.Tenant, PeopleLog, draft)
	})
	if errors.Is(err, ErrNoChange) {
		return p.Get(ctx, next.Tenant)
	}
	return next, err
}
