package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lib/pq"
)

// ErrAppRole means that a role can't be the one that processes connect as. The error says in
// one line why, and what to do.
var ErrAppRole = errors.New("app role")

// readOnly are the tables that only migrations write.
var readOnly = []string{"schema_version", "app_roles", "cancels_before_receipts"}

// needed returns the privileges that processes need on a relation of the schema. What a guard
// refuses to every statement is needed by none.
func needed(relation, kind string) []string {
	switch {
	case kind == "S":
		return []string{"USAGE"}
	case slices.Contains(readOnly, relation):
		return []string{"SELECT"}
	}
	out := []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	for _, g := range guards {
		if g.table == relation && strings.HasPrefix(g.when, "BEFORE ") && !strings.Contains(g.when, " OF ") {
			out = slices.DeleteFunc(out, func(p string) bool { return strings.Contains(g.when, p) })
		}
	}
	return out
}

// asker asks for one row or for several: a pool, a connection or a transaction.
type asker interface {
	querier
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// powersSQL is how a role could do more than it is granted: as a superuser, as one that makes
// roles, and as the owner of the database or of what is in the schema. Whoever is a member of
// an owner or of a superuser may become it.
const powersSQL = `
WITH owners AS (
  SELECT datdba AS owner FROM pg_database WHERE datname = current_database() UNION
  SELECT nspowner FROM pg_namespace WHERE nspname = 'recourse' UNION
  SELECT c.relowner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'recourse' UNION
  SELECT p.proowner FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'recourse'
)
SELECT r.rolname, r.rolsuper, r.rolcreaterole, r.oid IN (SELECT owner FROM owners),
  ARRAY(SELECT o.rolname::text FROM pg_roles o WHERE o.oid <> r.oid AND (o.rolsuper OR o.rolcreaterole OR o.oid IN (SELECT owner FROM owners)) AND pg_has_role(r.oid, o.oid, 'MEMBER') ORDER BY 1)
FROM pg_roles r WHERE r.rolname = $1`

// powers is what a role may do beside what it is granted.
type powers struct {
	name                   string
	superuser, roles, owns bool
	memberOf               []string
}

func powersOf(ctx context.Context, q asker, role string) (p powers, err error) {
	err = q.QueryRowContext(ctx, powersSQL, role).Scan(&p.name, &p.superuser, &p.roles, &p.owns, pq.Array(&p.memberOf))
	return p, err
}

// say returns why the role is no app role; empty when it may be one.
func (p powers) say() string {
	switch {
	case p.superuser:
		return "is a superuser"
	case p.owns:
		return "owns the database, or what is in the schema"
	case p.roles:
		return "may make roles, and so may become the owner"
	case len(p.memberOf) > 0:
		return "is a member of " + strings.Join(p.memberOf, ", ")
	}
	return ""
}

// mayBeAppRole is nil when a role exists and may do nothing but what it is granted.
func mayBeAppRole(ctx context.Context, q asker, role string) error {
	p, err := powersOf(ctx, q, role)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: there is no role %s: make it, by CREATE ROLE %s LOGIN PASSWORD '...', or forget it: recourse migrate --no-app-role", ErrAppRole, role, pq.QuoteIdentifier(role))
	case err != nil:
		return unavailable(err)
	case p.say() != "":
		return fmt.Errorf("%w: the role %s %s, and could turn off what keeps evidence as it is: name another one, made by CREATE ROLE NAME LOGIN PASSWORD '...'", ErrAppRole, role, p.say())
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

// privilege is one on the schema, or on a relation of it.
type privilege struct{ relation, kind, name string }

func (p privilege) String() string {
	if p.kind == "n" {
		return p.name + " on the schema"
	}
	return p.name + " on " + p.relation
}

// on is what the privilege is on, as GRANT and REVOKE have it.
func (p privilege) on() string {
	switch p.kind {
	case "n":
		return "SCHEMA recourse"
	case "S":
		return "SEQUENCE recourse." + pq.QuoteIdentifier(p.relation)
	}
	return "TABLE recourse." + pq.QuoteIdentifier(p.relation)
}

// unlike returns the privileges in which a role differs from what processes need.
func unlike(ctx context.Context, q querier, role string) (missing, excess []privilege, err error) {
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
			need = needed(p.relation, p.kind)
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

// appRole returns the role that is remembered; empty when none is.
func appRole(ctx context.Context, q asker) (name string, err error) {
	err = q.QueryRowContext(ctx, appRoleSQL).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) || sqlState(err) == "42P01" { // of a schema from before
		return "", nil
	}
	return name, err
}

// revokeAllSQL takes back whatever a role was granted in the schema.
func revokeAllSQL(role string) string {
	return fmt.Sprintf("REVOKE ALL ON ALL TABLES IN SCHEMA recourse FROM %[1]s; REVOKE ALL ON ALL SEQUENCES IN SCHEMA recourse FROM %[1]s; REVOKE ALL ON SCHEMA recourse FROM %[1]s", pq.QuoteIdentifier(role))
}

// bereavedSQL lists the processes of which a beat came lately, whose role has its privileges
// neither by itself, as an owner does, nor from the role $1. A process that does not say its
// role, for it is of a program from before, is one of them.
const bereavedSQL = `
SELECT s.worker, CASE coalesce(to_jsonb(s) ->> 'role', '') WHEN '' THEN 'a role that it does not say' ELSE 'role ' || (to_jsonb(s) ->> 'role') END
FROM recourse.sessions s LEFT JOIN pg_roles r ON r.rolname = to_jsonb(s) ->> 'role'
WHERE NOT s.lost AND coalesce(s.beat_at, s.started_at) >= clock_timestamp() - $2 * interval '1 second'
  AND NOT coalesce(pg_has_role(r.oid, (SELECT relowner FROM pg_class WHERE oid = 'recourse.runs'::regclass), 'USAGE')
    OR EXISTS (SELECT FROM pg_roles b WHERE b.rolname = $1 AND pg_has_role(r.oid, b.oid, 'USAGE')), false)
ORDER BY s.started_at, s.id`

// beatenFor is for how many seconds after its last beat a process is taken to run.
const beatenFor = 30

// bereaves returns an error that wraps ErrAppRole while processes run that would lose what they
// may do if a role took the place of the one before; without a role, if that lost its place.
func bereaves(ctx context.Context, q querier, was, role string) (err error) {
	if was == "" || was == role {
		return nil
	}
	rows, err := q.QueryContext(ctx, bereavedSQL, role, beatenFor)
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
		return fmt.Errorf("%w: %s would lose what they may do while they run: stop them first", ErrAppRole, some(all))
	}
	return fmt.Errorf("%w: %s would lose what they may do while they run: stop them first, or let them keep it by GRANT %s TO their role", ErrAppRole, some(all), pq.QuoteIdentifier(role))
}

// grant makes the privileges of the chosen role what processes need, and remembers it. What the
// role before was granted is taken back. It returns the role; empty when there is none.
func (m Migration) grant(ctx context.Context, db *sql.DB) (role string, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", unavailable(err)
	}
	defer func() { err = errors.Join(err, rollback(tx)) }()
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(guardsLock)); err != nil {
		return "", unavailable(err)
	}
	was, err := appRole(ctx, tx)
	if err != nil {
		return "", unavailable(err)
	}
	role = m.chosen(was)
	if err := bereaves(ctx, tx, was, role); err != nil {
		return "", err
	}
	statements, err := grants(ctx, tx, was, role)
	if err != nil {
		return "", unavailable(err)
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return "", unavailable(err)
		}
	}
	if was != role {
		if _, err := tx.ExecContext(ctx, `INSERT INTO recourse.app_roles (name, at) SELECT $1, greatest(clock_timestamp(), max(at) + interval '1 microsecond') FROM recourse.app_roles`, role); err != nil {
			return "", unavailable(err)
		}
	}
	if err := tx.Commit(); err != nil {
		return "", unavailable(err)
	}
	return role, nil
}

// grants returns the statements by which a role has what processes need, and the one before has
// nothing. There are only those that change something: each updates a row of the catalog that
// others read and analyse.
func grants(ctx context.Context, q asker, was, role string) (statements []string, err error) {
	if was != "" && was != role {
		var exists bool
		if err := q.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, was).Scan(&exists); err != nil {
			return nil, err
		}
		if exists { // else what it was granted went with it
			statements = append(statements, revokeAllSQL(was))
		}
	}
	if role == "" {
		return statements, nil
	}
	missing, excess, err := unlike(ctx, q, role)
	for _, p := range missing {
		statements = append(statements, fmt.Sprintf("GRANT %s ON %s TO %s", p.name, p.on(), pq.QuoteIdentifier(role)))
	}
	for _, p := range excess {
		statements = append(statements, fmt.Sprintf("REVOKE %s ON %s FROM %s", p.name, p.on(), pq.QuoteIdentifier(role)))
	}
	return statements, err
}

// Role is the role that the connections are of.
type Role struct {
	Name    string
	Power   string   // by which it could do more than it is granted; empty: none
	Missing []string // privileges that processes need, and it has not
	Excess  []string // privileges that it has, and no process needs
	AppRole string   // whom migrate grants what processes need; empty: nobody
}

// Role reads what the role may do that the connections are of.
func (j *Journal) Role(ctx context.Context) (r Role, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var acting string // where it is not the one that connected, that one may take its own place again
	if err := j.reads.QueryRowContext(ctx, `SELECT session_user, current_user`).Scan(&r.Name, &acting); err != nil {
		return r, unavailable(err)
	}
	p, err := powersOf(ctx, j.reads, r.Name)
	if err != nil {
		return r, unavailable(err)
	}
	r.Power = p.say()
	missing, excess, err := unlike(ctx, j.reads, acting)
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
	r.AppRole, err = appRole(ctx, j.reads)
	if err != nil && sqlState(err) != "42501" { // whom migrate granted nothing may not read it
		return r, unavailable(err)
	}
	return r, nil
}

// Granted is nil when the role that the connections are of has the privileges that processes
// need. Else the error wraps ErrSchema and says in one line what to do.
func (j *Journal) Granted(ctx context.Context) error {
	r, err := j.Role(ctx)
	switch {
	case err != nil:
		return err
	case len(r.Missing) > 0 && r.AppRole != "" && r.AppRole != r.Name:
		return fmt.Errorf("%w: the role %s lacks %s; connect as %s, which migrate grants them, or make it a member of that", ErrSchema, r.Name, some(r.Missing), r.AppRole)
	case len(r.Missing) > 0:
		return fmt.Errorf("%w: the role %s lacks %s; run: recourse migrate --app-role %s, as the owner of the schema", ErrSchema, r.Name, some(r.Missing), r.Name)
	}
	return nil
}

// some lists the first few of what may be many.
func some(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
