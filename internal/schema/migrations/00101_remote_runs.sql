-- +goose Up

-- Remote runs: workers outside fetch them from their queue, and hold a lease for each attempt.

-- remote runs have no notification. priority and expires_at are of remote runs; a higher priority is
-- fetched first, and no attempt starts from expires_at on. handed_back counts the attempts that
-- workers handed back. output is what the worker returned with its success; the receipt has its
-- digest. A run that waits to be activated is due at the end of the year 9999. fetchable is what the
-- indexes of remote runs are of: a state in their predicates would keep the update of any run from
-- being heap-only.
ALTER TABLE recourse.runs
    ADD COLUMN remote      bool NOT NULL DEFAULT false,
    ADD COLUMN priority    int  NOT NULL DEFAULT 0,
    ADD COLUMN expires_at  timestamptz,
    ADD COLUMN handed_back int  NOT NULL DEFAULT 0,
    ADD COLUMN output      bytea,
    ADD COLUMN fetchable   bool NOT NULL GENERATED ALWAYS AS (live AND remote AND state <> 'running') STORED,
    DROP CONSTRAINT runs_state_check,
    DROP CONSTRAINT runs_payload_check,
    DROP CONSTRAINT budgets_in_attempts,
    ADD CONSTRAINT runs_state_check CHECK (state IN ('pending', 'running', 'scheduled', 'succeeded', 'dead_lettered', 'discarded', 'cancelled')) NOT VALID,
    ADD CONSTRAINT runs_payload_check CHECK (length(payload) <= CASE WHEN remote THEN 1114112 ELSE 65536 END) NOT VALID,
    ADD CONSTRAINT budgets_in_attempts CHECK (budget_spent + recoveries + handed_back <= attempt_count) NOT VALID,
    ADD CONSTRAINT discarded_moves_nothing CHECK (state <> 'discarded' OR operation_key IS NULL) NOT VALID,
    ADD CONSTRAINT only_remote CHECK (remote OR priority = 0 AND expires_at IS NULL AND handed_back = 0 AND output IS NULL) NOT VALID,
    ADD CONSTRAINT output_is_bounded CHECK (length(output) <= 65536) NOT VALID;
ALTER TABLE recourse.runs
    VALIDATE CONSTRAINT runs_state_check,
    VALIDATE CONSTRAINT runs_payload_check,
    VALIDATE CONSTRAINT budgets_in_attempts,
    VALIDATE CONSTRAINT discarded_moves_nothing,
    VALIDATE CONSTRAINT only_remote,
    VALIDATE CONSTRAINT output_is_bounded;

DROP INDEX recourse.runs_due;
-- Read by sweeps, which notify due runs again, and by the search for sessions that are missing.
CREATE INDEX runs_due ON recourse.runs (due_at, id) WHERE live AND NOT remote;
-- Read by fetches, priority by priority: each stops at the first run that is not due yet.
CREATE INDEX runs_fetch ON recourse.runs (tenant, queue, priority DESC, due_at, id) WHERE fetchable;
-- Read by the loop that ends runs which expired.
CREATE INDEX runs_expiring ON recourse.runs (expires_at, id) WHERE fetchable AND expires_at IS NOT NULL;

-- A lease is written in the commit of the claim and removed in the commit that ends the attempt. A
-- heartbeat raises version and touches no other row. A process marks in ended why the lease is over,
-- before it ends the attempt; nothing extends a marked lease.
CREATE TABLE recourse.leases (
    run_id    uuid   PRIMARY KEY,
    tenant    text   NOT NULL CHECK (tenant <> ''),
    worker    text   NOT NULL,
    attempt   int    NOT NULL CHECK (attempt > 0),
    at        timestamptz NOT NULL,
    length_ms int    NOT NULL CHECK (length_ms > 0),
    limit_ms  int    NOT NULL CHECK (limit_ms >= 0),
    version   bigint NOT NULL DEFAULT 0,
    ended     text   NOT NULL DEFAULT '' CHECK (ended IN ('', 'visibility_timeout', 'timeout'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
COMMENT ON TABLE recourse.leases IS 'One row per attempt that a remote worker executes';

-- Jobs with equal fingerprints are not wanted twice. A row is what the newest run of a case claims;
-- it counts while that run is in a state that a later job names, until its time. Whoever reads or
-- writes the rows of a fingerprint holds its advisory lock.
CREATE TABLE recourse.unique_jobs (
    tenant      text  NOT NULL CHECK (tenant <> ''),
    fingerprint bytea NOT NULL CHECK (length(fingerprint) = 32),
    case_id     uuid  NOT NULL,
    until       timestamptz,
    PRIMARY KEY (tenant, fingerprint, case_id)
);
COMMENT ON TABLE recourse.unique_jobs IS 'One row per job that was submitted as unique';
-- Read when a job is retried.
CREATE UNIQUE INDEX unique_jobs_case ON recourse.unique_jobs (case_id);

-- The queues that jobs were enqueued to. A name may be there without a job: it is written before the
-- first one.
CREATE TABLE recourse.job_queues (
    tenant     text NOT NULL CHECK (tenant <> ''),
    name       text NOT NULL CHECK (name <> ''),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, name)
);
COMMENT ON TABLE recourse.job_queues IS 'One row per queue of jobs';

-- worker: fetches jobs, answers for them and extends its leases, and nothing else.
ALTER TABLE recourse.keys
    DROP CONSTRAINT keys_roles_check,
    ADD CONSTRAINT keys_roles_check CHECK (cardinality(roles) > 0 AND roles <@ ARRAY['submitter', 'worker', 'operator', 'approver', 'auditor', 'admin', 'platform']);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
