package schema

import (
	"context"
	"fmt"

	"github.com/lib/pq"
)

// submitGrants are what SubmitTx needs of the role of the caller's transaction, to open cases and to read what became of those that
// exist. No run or case that exists can be changed with them.
var submitGrants = []string{
	"USAGE ON SCHEMA recourse",
	"SELECT ON recourse.installation",
	"SELECT, INSERT ON recourse.cases, recourse.runs, recourse.operations, recourse.receipts",
	"INSERT ON recourse.outbox",
	"USAGE ON SEQUENCE recourse.outbox_id_seq",
	"SELECT, UPDATE (committed, breached, held, currency) ON recourse.escrows",
	"SELECT, DELETE ON recourse.escrow_deltas",
}

// submitRolesSQL finds the roles that grantSubmitRoles granted something to, by a privilege that no other command grants: they may write
// receipts that wait for their number, and can't read them.
const submitRolesSQL = `SELECT DISTINCT r.rolname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
WHERE n.nspname = 'recourse' AND c.relname = 'outbox' AND a.privilege_type = 'INSERT'
  AND NOT EXISTS (SELECT FROM aclexplode(c.relacl) b WHERE b.grantee = a.grantee AND b.privilege_type = 'SELECT') ORDER BY 1`

// SubmitRoles lists the roles that migrate was told to let submit.
func SubmitRoles(ctx context.Context, q Querier) (names []string, err error) {
	rows, err := q.QueryContext(ctx, submitRolesSQL)
	if err != nil {
		return nil, unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, unavailable(err)
		}
		names = append(names, name)
	}
	return names, wrapped(rows.Err())
}

// validateSubmitRole returns nil if the role exists, and may do only what it is granted.
func validateSubmitRole(ctx context.Context, q Querier, role, appRole string) error {
	err := validateAppRole(ctx, q, role)
	if err != nil {
		return err
	}
	var member bool
	if appRole != "" {
		err = q.QueryRowContext(ctx, `SELECT pg_has_role($1, oid, 'MEMBER') FROM pg_roles WHERE rolname = $2`, role, appRole).Scan(&member)
	}
	switch {
	case err != nil:
		return unavailable(err)
	case member:
		return fmt.Errorf("%w: the role %s is, or is a member of, the app role %s, which may do more than submit: name another role", ErrAppRole, role, appRole)
	}
	return nil
}

// submitGrantStatements returns the statements that grant role, and each role that was granted it before, what SubmitTx needs and
// nothing else.
func submitGrantStatements(ctx context.Context, q Querier, role string) (statements []string, err error) {
	roles, err := SubmitRoles(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, name := range append(roles, role) {
		if name == "" {
			continue
		}
		statements = append(statements, revokeAllSQL(name))
		for _, grant := range submitGrants {
			statements = append(statements, "GRANT "+grant+" TO "+pq.QuoteIdentifier(name))
		}
	}
	return statements, nil
}
