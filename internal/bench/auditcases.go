package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication/audit"
	"github.com/recourse-dev/recourse/receipts"
)

const (
	// auditedCases is how many cases are audited of a database with too many to audit all of them.
	auditedCases = 1000
	allAudited   = 10_000
)

// auditSample audits a database of jobs, or cases that are drawn from it if it has many.
func auditSample(ctx context.Context, j job, db *sql.DB) (err error) {
	var cases int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM recourse.cases`).Scan(&cases); err != nil {
		return err
	}
	if cases <= allAudited {
		j.Tasks = cases
		return checkAudit(ctx, j)
	}
	reader, err := audit.Open(ctx, j.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	audited, err := auditCases(ctx, db, reader, "bench", auditedCases)
	return errors.Join(err, equal("audited cases", audited, auditedCases))
}

// auditCases audits cases of a tenant, drawn at random if it has more than wanted, and returns how many.
func auditCases(ctx context.Context, db *sql.DB, reader *audit.Database, tenant string, wanted int) (n int, err error) {
	var ids string
	err = db.QueryRowContext(ctx, `SELECT coalesce(string_agg(id, ','), '') FROM (SELECT id::text FROM recourse.cases WHERE tenant = $1 ORDER BY random() LIMIT $2) x`, tenant, wanted).Scan(&ids)
	if err != nil || ids == "" {
		return 0, err
	}
	for text := range strings.SplitSeq(ids, ",") {
		id, err := receipts.ParseCaseID(text)
		if err != nil {
			return n, err
		}
		report, err := audit.Case(ctx, reader, tenant, id, audit.Query{})
		if err != nil {
			return n, err
		}
		if !report.OK() {
			return n, fmt.Errorf("the audit found case %s broken: %v", id, report.Broken)
		}
		n++
	}
	return n, nil
}
