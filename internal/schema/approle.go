package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/schema/stored"
)

// ErrAppRole means that a role can't be the app role. The error says in one line why, and
// what to do.
var ErrAppRole = errors.New("app role")

// migrationOnlyTables are the tables that only migrations write.
var migrationOnlyTables = []string{"schema_version", "app_roles"}

// requiredPrivileges returns the privileges that processes need on a relation of the
// schema. It leaves out what a trigger refuses to every statement.
func requiredPrivileges(relation, kind string) []string {
	switch {
	case kind == "S":
		return []string{"USAGE"}
	case slices.Contains(migrationOnlyTables, relation):
		return []string{"SELECT"}
	}
	out := []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	for _, trigger := range stored.Triggers {
		if trigger.Table == relation && strings.HasPrefix(trigger.Event, "BEFORE ") && strings.HasPrefix(trigger.Action, "STATEMENT ") && !strings.Contains(trigger.Event, " OF ") {
			out = slices.DeleteFunc(out, func(p string) bool { return strings.Contains(trigger.Event, p) })
		}
	}
	return out
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	stored.Querier
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// roleAttributesSQL finds how a role could do more than it is granted: as a superuser, as a
// role that may create roles, and as the owner of the database or of something in the
// schema. A member of an owner or of a superuser may become that role.
const roleAttributesSQL = `
WITH owners AS (
  SELECT datdba AS owner FROM pg_database WHERE datname = current_database() UNION
  SELECT nspowner FROM pg_namespace WHERE nspname = 'recourse' UNION
  SELECT c.relowner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'recourse' UNION
  SELECT p.proowner FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'recourse'
)
SELECT r.rolname, r.rolsuper, r.rolcreaterole, r.oid IN (SELECT owner FROM owners),
  ARRAY(SELECT o.rolname::text FROM pg_roles o WHERE o.oid <> r.oid AND (o.rolsuper OR o.rolcreaterole OR o.oid IN (SELECT owner FROM owners)) AND pg_has_role(r.oid, o.oid, 'MEMBER') ORDER BY 1)
FROM pg_roles r WHERE r.rolname = $1`

// roleAttributes is what a role may do beyond what it is granted.
type roleAttributes struct {
	name                             string
	superuser, createsRoles, isOwner bool
	memberOf                         []string
}

func readRoleAttributes(ctx context.Context, q Querier, role string) (p roleAttributes, err error) {
	err = q.QueryRowContext(ctx, roleAttributesSQL, role).Scan(&p.name, &p.superuser, &p.createsRoles, &p.isOwner, pq.Array(&p.memberOf))
	return p, err
}

// disqualification returns why the role can't be the app role; empty if it can.
func (p roleAttributes) disqualification() string {
	switch {
	case p.superuser:
		return "is a superuser"
	case p.isOwner:
		return "owns the database, or what is in the schema"
	case p.createsRoles:
		return "may make roles, and so may become the owner"
	case len(p.memberOf) > 0:
		return "is a member of " + strings.Join(p.memberOf, ", ")
	}
	return ""
}

// validateAppRole returns nil if the role exists and may do only what it is granted.
func validateAppRole(ctx context.Context, q Querier, role string) error {
	p, err := readRoleAttributes(ctx, q, role)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: there is no role %s: create it by CREATE ROLE %s LOGIN PASSWORD '...', or run: recourse migrate --no-app-role", ErrAppRole, role, pq.QuoteIdentifier(role))
	case err != nil:
		return unavailable(err)
	case p.disqualification() != "":
		return fmt.Errorf("%w: the role %s %s, and could turn off the triggers that protect evidence: name another role, created by CREATE ROLE NAME LOGIN PASSWORD '...'", ErrAppRole, role, p.disqualification())
	}
	return nil
}

const privilegesSQL = `
SELECT '', 'n', p, has_schema_privilege($1, 'recourse', p) FROM unnest(ARRAY['USAGE', 'CREATE']) AS p
UNION ALL
SELECT c.relname, c.relkind::text, p, has_table_privilege($1, c.oid, p) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) AS p
WHERE n.nspname = 'recourse' AND c.relkind IN ('r', 'p', 'v', 'm')
UNION ALL
SELECT c.relname, 'S', p, has_sequence_privilege($1, c.oid, p) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) AS p
WHERE n.nspname = 'recourse' AND c.relkind = 'S'
ORDER BY 2, 1, 3`

// privilege is a privilege on the schema, or on a relation of it.
type privilege struct{ relation, kind, name string }

func (p privilege) String() string {
	if p.kind == "n" {
		return p.name + " on the schema"
	}
	return p.name + " on " + p.relation
}

// grantTarget returns the object of the privilege, as GRANT and REVOKE expect it.
func (p privilege) grantTarget() string {
	switch p.kind {
	case "n":
		return "SCHEMA recourse"
	case "S":
		return "SEQUENCE recourse." + pq.QuoteIdentifier(p.relation)
	}
	return "TABLE recourse." + pq.QuoteIdentifier(p.relation)
}

// diffPrivileges returns the privileges that a role lacks, and those it has but processes
// do not need.
func diffPrivileges(ctx context.Context, q Querier, role string) (missing, excess []privilege, err error) {
	rows, err := q.QueryContext(ctx, privilegesSQL, role)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p privilege
		var held bool
		if err := rows.Scan(&p.relation, &p.kind, &p.name, &held); err != nil {
			return nil, nil, err
		}
		need := []string{"USAGE"}
		if p.kind != "n" {
			need = requiredPrivileges(p.relation, p.kind)
		}
		switch needs := slices.Contains(need, p.name); {
		case needs && !held:
			missing = append(missing, p)
		case held && !needs:
			excess = append(excess, p)
		}
	}
	return missing, excess, rows.Err()
}

const appRoleSQL = `SELECT name FROM recourse.app_roles ORDER BY at DESC LIMIT 1`

// storedAppRole returns the app role that the database remembers; empty if there is none.
func storedAppRole(ctx context.Context, q Querier) (name string, err error) {
	err = q.QueryRowContext(ctx, appRoleSQL).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) || sqlState(err) == "42P01" { // an empty database has no such table
		return "", nil
	}
	return name, err
}

// revokeAllSQL returns the statements that revoke all of a role's privileges in the schema.
func revokeAllSQL(role string) string {
	return fmt.Sprintf("REVOKE ALL ON ALL TABLES IN SCHEMA recourse FROM %[1]s; REVOKE ALL ON ALL SEQUENCES IN SCHEMA recourse FROM %[1]s; REVOKE ALL ON SCHEMA recourse FROM %[1]s", pq.QuoteIdentifier(role))
}

// affectedProcessesSQL lists the processes with a recent heartbeat whose role has its
// privileges neither as a member of the owner nor from the role $1. It includes processes
// that have not reported their role.
const affectedProcessesSQL = `
SELECT s.worker, CASE s.role WHEN '' THEN 'a role that it does not say' ELSE 'role ' || s.role END
FROM recourse.sessions s LEFT JOIN pg_roles r ON r.rolname = s.role
WHERE NOT s.lost AND coalesce(s.beat_at, s.started_at) >= clock_timestamp() - $2 * interval '1 second'
  AND NOT coalesce(pg_has_role(r.oid, (SELECT relowner FROM pg_class WHERE oid = 'recourse.runs'::regclass), 'USAGE')
    OR EXISTS (SELECT FROM pg_roles b WHERE b.rolname = $1 AND pg_has_role(r.oid, b.oid, 'USAGE')), false)
ORDER BY s.started_at, s.id`

// recentBeatSeconds is how long after its last heartbeat a process is taken to run.
const recentBeatSeconds = 30

// checkProcessesKeepPrivileges returns an error that wraps ErrAppRole if running processes
// would lose privileges when role replaces the app role was. An empty role means that there
// is none any more.
func checkProcessesKeepPrivileges(ctx context.Context, q Querier, was, role string) (err error) {
	if was == "" || was == role {
		return nil
	}
	rows, err := q.QueryContext(ctx, affectedProcessesSQL, role, recentBeatSeconds)
	if err != nil {
		return unavailable(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var worker, as string
		if err := rows.Scan(&worker, &as); err != nil {
			return unavailable(err)
		}
		all = append(all, worker+" ("+as+")")
	}
	switch err := rows.Err(); {
	case err != nil:
		return unavailable(err)
	case len(all) == 0:
		return nil
	case role == "":
		return fmt.Errorf("%w: %s would lose their privileges while they run: stop them first (a stopped process counts for 30 s)", ErrAppRole, firstFew(all))
	}
	return fmt.Errorf("%w: %s would lose their privileges while they run: stop them first (a stopped process counts for 30 s), or keep them by GRANT %s TO their role", ErrAppRole, firstFew(all), pq.QuoteIdentifier(role))
}

// applyGrants grants the chosen role exactly what processes need, revokes what the previous
// role was granted, and stores the choice. It returns the role; empty if there is none.
func (m Migration) applyGrants(ctx context.Context, db *sql.DB) (role string, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", unavailable(err)
	}
	defer func() {
		if rollbackErr := tx.Rollback(); !errors.Is(rollbackErr, sql.ErrTxDone) {
			err = errors.Join(err, rollbackErr)
		}
	}()
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(triggersLock)); err != nil {
		return "", unavailable(err)
	}
	previous, err := storedAppRole(ctx, tx)
	if err != nil {
		return "", unavailable(err)
	}
	role = m.effectiveAppRole(previous)
	if err := checkProcessesKeepPrivileges(ctx, tx, previous, role); err != nil {
		return "", err
	}
	statements, err := grantStatements(ctx, tx, previous, role)
	if err != nil {
		return "", unavailable(err)
	}
	submits, err := submitGrantStatements(ctx, tx, m.SubmitRole)
	if err != nil {
		return "", err
	}
	for _, s := range append(statements, submits...) {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return "", unavailable(err)
		}
	}
	if previous != role {
		if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.app_roles (name, at) SELECT $1, greatest(clock_timestamp(), max(at) + interval '1 microsecond') FROM recourse.app_roles`, role); err != nil {
			return "", unavailable(err)
		}
	}
	if err := tx.Commit(); err != nil {
		return "", unavailable(err)
	}
	return role, nil
}

// grantStatements returns the statements that give a role what processes need, and take
// everything from the previous one. It returns only statements that change something: each
// updates a row of the catalog that others read and analyse.
func grantStatements(ctx context.Context, q Querier, previous, role string) (statements []string, err error) {
	if previous != "" && previous != role {
		var exists bool
		if err := q.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, previous).Scan(&exists); err != nil {
			return nil, err
		}
		if exists { // else its privileges were dropped with it
			statements = append(statements, revokeAllSQL(previous))
		}
	}
	if role == "" {
		return statements, nil
	}
	missing, excess, err := diffPrivileges(ctx, q, role)
	for _, p := range missing {
		statements = append(statements, fmt.Sprintf("GRANT %s ON %s TO %s", p.name, p.grantTarget(), pq.QuoteIdentifier(role)))
	}
	for _, p := range excess {
		statements = append(statements, fmt.Sprintf("REVOKE %s ON %s FROM %s", p.name, p.grantTarget(), pq.QuoteIdentifier(role)))
	}
	return statements, err
}

// Role is the role of this process's connections.
type Role struct {
	Name    string
	Power   string   // why it could do more than it is granted; empty if it can't
	Missing []string // privileges that processes need and the role lacks
	Excess  []string // privileges that the role has and no process needs
	AppRole string   // the role that migrate grants privileges to; empty if none
}

// readTimeout bounds the reading of a role.
const readTimeout = 15 * time.Second

// ReadRole reads the role of the connections and its privileges.
func ReadRole(ctx context.Context, q Querier) (r Role, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var acting string // current_user; SET ROLE may make it differ from session_user, which the session can return to
	if err := q.QueryRowContext(ctx, `SELECT session_user, current_user`).Scan(&r.Name, &acting); err != nil {
		return r, unavailable(err)
	}
	p, err := readRoleAttributes(ctx, q, r.Name)
	if err != nil {
		return r, unavailable(err)
	}
	r.Power = p.disqualification()
	missing, excess, err := diffPrivileges(ctx, q, acting)
	if err != nil {
		return r, unavailable(err)
	}
	for _, m := range missing {
		r.Missing = append(r.Missing, m.String())
	}
	if r.Power == "" {
		for _, e := range excess {
			r.Excess = append(r.Excess, e.String())
		}
	}
	r.AppRole, err = storedAppRole(ctx, q)
	if err != nil && sqlState(err) != "42501" { // a role without grants may not read it
		return r, unavailable(err)
	}
	return r, nil
}

// CheckPrivileges returns nil if the role of the connections has the privileges that
// processes need. Otherwise the error wraps ErrSchema and says in one line what to do.
func CheckPrivileges(ctx context.Context, q Querier) error {
	r, err := ReadRole(ctx, q)
	switch {
	case err != nil:
		return err
	case len(r.Missing) > 0 && r.AppRole != "" && r.AppRole != r.Name:
		return fmt.Errorf("%w: the role %s lacks %s; connect as the app role %s, or grant that role to this one", ErrSchema, r.Name, firstFew(r.Missing), r.AppRole)
	case len(r.Missing) > 0:
		return fmt.Errorf("%w: the role %s lacks %s; run: recourse migrate --app-role %s, as the owner of the schema", ErrSchema, r.Name, firstFew(r.Missing), r.Name)
	}
	return nil
}

// firstFew lists the first few elements, and how many more there are.
func firstFew(all []string) string {
	const limit = 5
	if len(all) <= limit {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:limit], ", "), len(all)-limit)
}
