-- +goose Up

-- The schema of Recourse, by subject: money and cases, receipts and their order, circuit
-- breakers, dead letters, bulk plans, rules and settings, access, processes. NAMES.md lists
-- the names of before.
--
-- Triggers that refuse changes of evidence are created by triggers.go after every migration,
-- and fire in every session; their functions are here.

---------------------------------------------------------------------------------------------
-- Functions of the triggers that refuse
---------------------------------------------------------------------------------------------

-- receipts, event_log: rows are only added.
-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'recourse: % is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd

-- escrows, cases, runs, operations: rows that others refer to stay. Foreign keys would cost
-- a search and a row lock for every row that is written.
-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'recourse: rows of % are never removed', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd

-- escrows, cases, runs, operations: what a submission fixed is never changed. The statements
-- that write transitions name none of these columns, so the triggers cost them nothing.
-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'recourse: what a submission fixed in % is never changed', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd

-- runs: the payload of a task that moves no money is removed with its dead letter, in a
-- transaction that sets recourse.erasing. The audit finds other removals by the digest in
-- the receipt.
-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_payload() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('recourse.erasing', true) IS DISTINCT FROM 'purged' THEN
        RAISE EXCEPTION 'recourse: the payload of a run is never changed' USING ERRCODE = '42501';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- escrows: an escrow can be corrected until a case names it. Whoever opens a case locks its
-- escrow, so that no case begins meanwhile.
-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_other_sum() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM recourse.cases c WHERE c.escrow_id = OLD.id) THEN
        RAISE EXCEPTION 'recourse: what an escrow holds is never changed once a case names it' USING ERRCODE = '42501';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

---------------------------------------------------------------------------------------------
-- Escrows
---------------------------------------------------------------------------------------------

-- committed is reserved, released and refunded together, without the open deltas. A payment is
-- recorded even if it exceeds held: it raises breached, so that no CHECK can refuse it.
CREATE TABLE recourse.escrows (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant    text   NOT NULL CHECK (tenant <> ''),
    reference text   NOT NULL CHECK (reference <> ''),
    currency  text   NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    held      bigint NOT NULL CHECK (held BETWEEN 1 AND 9007199254740991),
    committed bigint NOT NULL DEFAULT 0 CHECK (committed >= 0),
    breached  bigint NOT NULL DEFAULT 0 CHECK (breached >= 0),
    CONSTRAINT conservation CHECK (committed <= held + breached),
    UNIQUE (tenant, reference)
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.escrows IS 'One row per escrow: what it holds, and what its cases have committed of it';
-- Read by the gauge and the list of escrows that committed more than they hold.
CREATE INDEX escrows_breached ON recourse.escrows (id) WHERE breached > 0;

-- A transition inserts what it adds to or frees from its escrow, and so never waits for the
-- escrow's row. Whoever locks that row folds: deletes its deltas, and adds to the row what that
-- DELETE returned. A delta is named by the first receipt of its transition. A foreign key would
-- lock the escrow's row.
CREATE TABLE recourse.escrow_deltas (
    escrow_id bigint NOT NULL,
    case_id   uuid   NOT NULL,
    seq       bigint NOT NULL CHECK (seq >= 1),
    delta     bigint NOT NULL CHECK (delta <> 0),
    PRIMARY KEY (escrow_id, case_id, seq)
);
COMMENT ON TABLE recourse.escrow_deltas IS 'One row per transition whose change of a committed sum is not folded into the escrow yet';

-- The row of an escrow and its open deltas, at one moment.
CREATE VIEW recourse.escrow_sums AS
SELECT e.id, e.tenant, e.reference, e.currency, e.held, (e.committed + d.open)::bigint AS committed, d.open, e.breached
FROM recourse.escrows e, LATERAL (SELECT coalesce(sum(x.delta), 0)::bigint AS open FROM recourse.escrow_deltas x WHERE x.escrow_id = e.id) d;
COMMENT ON VIEW recourse.escrow_sums IS 'What each escrow has committed now';

---------------------------------------------------------------------------------------------
-- Cases, operations and runs
---------------------------------------------------------------------------------------------

-- last_seq and last_link are the head of the case's chain, and the version that every
-- transition expects. Whoever locks the row writes the case. Cases of kind operations have
-- receipts about settings, and no run.
CREATE TABLE recourse.cases (
    id            uuid   PRIMARY KEY,
    tenant        text   NOT NULL CHECK (tenant <> ''),
    kind          text   NOT NULL CHECK (kind IN ('settlement', 'plain', 'operations')),
    subject       text   NOT NULL CHECK (subject <> ''),
    escrow_id     bigint,
    submission    text   NOT NULL DEFAULT '',
    content       bytea  NOT NULL,
    progression   text   NOT NULL DEFAULT '' CHECK (progression IN ('', 'pending', 'in-progress', 'review-needed',
                         'approved-for-settlement', 'partially-settled', 'settled', 'dispute-ready', 'refunded')),
    reason_code   text   NOT NULL DEFAULT '' CHECK (reason_code IN ('', 'approve', 'reject', 'request-revision', 'escalate')),
    reason        text   NOT NULL DEFAULT '',
    lifecycle     text   NOT NULL DEFAULT '' CHECK (lifecycle IN ('', 'hold-active', 're-escalated')),
    adjudication  text   NOT NULL DEFAULT '' CHECK (adjudication IN ('', 'release', 'refund')),
    generation    int    NOT NULL DEFAULT 0 CHECK (generation >= 0),
    asked         bigint NOT NULL DEFAULT 0 CHECK (asked >= 0),
    moved         bigint NOT NULL DEFAULT 0 CHECK (moved >= 0),
    reserved      bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    released      bigint NOT NULL DEFAULT 0 CHECK (released >= 0),
    refunded      bigint NOT NULL DEFAULT 0 CHECK (refunded >= 0),
    run_id        uuid,
    unknown_open  int    NOT NULL DEFAULT 0 CHECK (unknown_open >= 0),
    epoch         int    NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    first_sent_at timestamptz,
    last_seq      bigint NOT NULL CHECK (last_seq >= 1),
    last_link     bytea  NOT NULL CHECK (length(last_link) = 32),
    CONSTRAINT settlement_has_escrow  CHECK ((kind = 'settlement') = (escrow_id IS NOT NULL)),
    CONSTRAINT operations_have_no_run CHECK ((kind = 'operations') = (run_id IS NULL)),
    UNIQUE (tenant, kind, subject)
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.cases IS 'One row per case: its settlement, its active run and the head of its receipts';
-- Read by refuse_other_sum, and by the comparison of escrows with their cases.
CREATE INDEX cases_escrow ON recourse.cases (escrow_id) WHERE escrow_id IS NOT NULL;
-- Read by lookups: cases with an unknown outcome are few, and only their changes write to it.
CREATE INDEX cases_unknown ON recourse.cases (id) WHERE unknown_open > 0;

-- Written once, and sent on every attempt.
CREATE TABLE recourse.operations (
    key     bytea PRIMARY KEY CHECK (length(key) = 32),
    case_id uuid  NOT NULL,
    request bytea NOT NULL CHECK (length(request) <= 65536)
);
COMMENT ON TABLE recourse.operations IS 'One row per operation key: the bytes of its request';

-- active is true while the run is live or its dead letter is open; a case has one such run.
-- token is the claim. outstanding_calls are the attempts that ended while their call went on;
-- NULL, as nearly always, if there are none. Half of each page is left free for claims, so that
-- they are HOT updates: a claim changes neither a column nor a predicate of an index.
CREATE TABLE recourse.runs (
    id                  uuid  PRIMARY KEY,
    case_id             uuid  NOT NULL,
    tenant              text  NOT NULL CHECK (tenant <> ''),
    family              text  NOT NULL,
    retry_key           text  NOT NULL,
    operation_key       bytea CHECK (length(operation_key) = 32),
    queue               text  NOT NULL,
    target              text  NOT NULL,
    policy              text  NOT NULL,
    payload             bytea CHECK (length(payload) <= 65536),
    parent_id           uuid,
    state               text  NOT NULL CHECK (state IN ('pending', 'running', 'scheduled', 'succeeded', 'dead_lettered', 'cancelled')),
    live                bool  NOT NULL,
    letter              text  NOT NULL DEFAULT '' CHECK (letter IN ('', 'open', 'forked', 'reconciled', 'superseded', 'purged')),
    active              bool  NOT NULL,
    attempt_count       int   NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    budget_spent        int   NOT NULL DEFAULT 0 CHECK (budget_spent >= 0),
    recoveries          int   NOT NULL DEFAULT 0 CHECK (recoveries >= 0),
    class               text  NOT NULL DEFAULT '' CHECK (class IN ('', 'executed', 'not_executed', 'unknown')),
    token               uuid,
    last_transition     uuid  NOT NULL,
    session_id          uuid,
    cancel_requested    bool  NOT NULL DEFAULT false,
    cancel_by           text  NOT NULL DEFAULT '',
    cancel_reason       text  NOT NULL DEFAULT '',
    due_at              timestamptz NOT NULL,
    dead_at             timestamptz,
    notification_number int   NOT NULL DEFAULT 1,
    reason              text  NOT NULL DEFAULT '',
    error_type          text  NOT NULL DEFAULT '',
    error_code          text  NOT NULL DEFAULT '',
    error_text          text  NOT NULL DEFAULT '',
    outstanding_calls   int[],
    CONSTRAINT cancel_has_actor    CHECK (cancel_requested = (cancel_by <> '')),
    CONSTRAINT live_is_state       CHECK (live = (state IN ('pending', 'running', 'scheduled'))),
    CONSTRAINT letter_is_death     CHECK ((letter <> '') = (state = 'dead_lettered')),
    CONSTRAINT death_has_time      CHECK ((dead_at IS NOT NULL) = (state = 'dead_lettered')),
    CONSTRAINT active_is_state     CHECK (active = (live OR letter = 'open')),
    CONSTRAINT budgets_in_attempts CHECK (budget_spent + recoveries <= attempt_count)
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.runs IS 'One row per run: its task, its state, and how its dead letter ended';
COMMENT ON COLUMN recourse.runs.cancel_requested IS 'the attempt is to be the last; of a fork, what its dead letter had reserved stays so';
-- Read by submissions: one active run has a retry key.
CREATE UNIQUE INDEX runs_key ON recourse.runs (tenant, family, retry_key) WHERE active;
-- Refuses a second active run of a case.
CREATE UNIQUE INDEX runs_one_case ON recourse.runs (case_id) WHERE active;
-- Read by sweeps, which notify due runs again.
CREATE INDEX runs_due ON recourse.runs (due_at, id) WHERE live;
-- Read by the rebuild of the search index.
CREATE INDEX runs_dead ON recourse.runs (tenant, dead_at, id) WHERE dead_at IS NOT NULL;
-- Read for all runs of a case.
CREATE INDEX runs_case ON recourse.runs (case_id, id);
-- Read by retention, which walks the open dead letters of a family by age.
CREATE INDEX runs_letters ON recourse.runs (family, dead_at, id) WHERE letter = 'open';
-- Read by the projection: most cases that changed have no dead run.
CREATE INDEX runs_dead_of_case ON recourse.runs (case_id) WHERE dead_at IS NOT NULL;

-- Written in the transaction in which the dead letter's run dies and the handler's run begins.
CREATE TABLE recourse.handlers (
    letter uuid PRIMARY KEY,
    run    uuid NOT NULL UNIQUE,
    tenant text NOT NULL CHECK (tenant <> '')
);
COMMENT ON TABLE recourse.handlers IS 'One row per dead letter that a run handles, and that run';

---------------------------------------------------------------------------------------------
-- Receipts and their order
---------------------------------------------------------------------------------------------

-- body is the canonical text that link covers, byte for byte; the other columns repeat it for
-- reading. Only the statement that changes the head of a case writes its receipts, so that no
-- foreign key is needed to keep the case.
CREATE TABLE recourse.receipts (
    case_id uuid   NOT NULL,
    seq     bigint NOT NULL CHECK (seq >= 1),
    run_id  uuid,
    tenant  text   NOT NULL,
    source  text   NOT NULL,
    subtype text   NOT NULL,
    actor   text   NOT NULL,
    at      timestamptz NOT NULL,
    body    text   NOT NULL,
    link    bytea  NOT NULL CHECK (length(link) = 32),
    PRIMARY KEY (case_id, seq)
);
COMMENT ON TABLE recourse.receipts IS 'The trail: one row per receipt, append-only';
REVOKE UPDATE, DELETE, TRUNCATE ON recourse.receipts FROM PUBLIC, CURRENT_USER;
-- Read by the gauge of payments beyond their adjudication.
CREATE INDEX receipts_breaches ON recourse.receipts (case_id, seq) WHERE subtype = 'conservation-breach';

-- A statement that writes receipts inserts a row per tenant. Readers must not go by id: a lower
-- one may be committed after a higher one.
CREATE TABLE recourse.outbox (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant   text   NOT NULL,
    case_ids uuid[]   NOT NULL,
    seqs     bigint[] NOT NULL,
    CONSTRAINT pairs CHECK (cardinality(case_ids) = cardinality(seqs) AND cardinality(seqs) > 0)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
COMMENT ON TABLE recourse.outbox IS 'Receipts that are committed and have no number in event_log yet';

-- The order of all receipts, without gaps. A row has as many numbers as pairs, the last of
-- which is last; within a row they go by case and sequence. tenant_last is the same in the
-- tenant's own order, so that a tenant does not see how many receipts others have.
CREATE TABLE recourse.event_log (
    last        bigint PRIMARY KEY,
    tenant      text   NOT NULL,
    case_ids    uuid[]   NOT NULL,
    seqs        bigint[] NOT NULL,
    tenant_last bigint CHECK (tenant_last <= last)
);
COMMENT ON TABLE recourse.event_log IS 'The order of receipts: one row per numbered row of the outbox, append-only';
REVOKE UPDATE, DELETE, TRUNCATE ON recourse.event_log FROM PUBLIC, CURRENT_USER;
-- Read by the events of a tenant, from a position on.
CREATE UNIQUE INDEX event_log_tenant_last ON recourse.event_log (tenant, coalesce(tenant_last, last));

-- Whoever locks the row writes the receipts of its case.
CREATE TABLE recourse.operation_logs (
    tenant  text NOT NULL CHECK (tenant <> ''),
    subject text NOT NULL CHECK (subject <> ''),
    case_id uuid NOT NULL UNIQUE,
    PRIMARY KEY (tenant, subject)
);
COMMENT ON TABLE recourse.operation_logs IS 'One row per operation log of a tenant, and its case';

---------------------------------------------------------------------------------------------
-- Circuit breakers
---------------------------------------------------------------------------------------------

-- tenant is empty in the breaker over all tenants; people open those of one tenant. While one
-- is not closed, claims of its runs are refused except for probes. version rises with every
-- change, and is what a change expects. opening counts the openings, and asked the new cases
-- that were probed since the last. In a tenant's row, recorded_opening is the last opening of the
-- breaker over all tenants whose beginning the tenant's receipts record, and recorded_closing the
-- last whose end they record.
CREATE TABLE recourse.circuit_breakers (
    tenant           text   NOT NULL,
    family           text   NOT NULL,
    target           text   NOT NULL,
    case_id          uuid   NOT NULL,
    state            text   NOT NULL CHECK (state IN ('closed', 'open', 'half_open')),
    by_hand          bool   NOT NULL,
    actor            text   NOT NULL,
    cause            text   NOT NULL,
    reason           text   NOT NULL,
    at               timestamptz NOT NULL,
    version          bigint NOT NULL,
    probes           uuid[] NOT NULL DEFAULT '{}',
    opened_at        timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00',
    opening          bigint NOT NULL DEFAULT 0,
    asked            bigint NOT NULL DEFAULT 0,
    paused           int    NOT NULL DEFAULT 0,
    few_since        timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00',
    recorded_opening bigint NOT NULL DEFAULT 0,
    recorded_closing bigint NOT NULL DEFAULT 0,
    CONSTRAINT closing_after_opening CHECK (recorded_closing <= recorded_opening),
    PRIMARY KEY (family, target, tenant)
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.circuit_breakers IS 'One row per circuit breaker of a target, over all tenants or for one';
-- Read by every claim: breakers that are not closed.
CREATE INDEX circuit_breakers_not_closed ON recourse.circuit_breakers (family, target, tenant) WHERE state <> 'closed';
-- Read by the receipts about an end that are still to be written.
CREATE INDEX circuit_breakers_unrecorded ON recourse.circuit_breakers (family, target) WHERE recorded_closing < recorded_opening;

-- Targets that the same escrow service executes share its breaker. A target without a row has
-- a breaker of its own. Processes that execute write it when they start.
CREATE TABLE recourse.targets (
    family  text NOT NULL,
    name    text NOT NULL CHECK (name <> ''),
    breaker text NOT NULL CHECK (breaker <> ''),
    PRIMARY KEY (family, name)
);
COMMENT ON TABLE recourse.targets IS 'One row per target that uses the circuit breaker of another one';

---------------------------------------------------------------------------------------------
-- Dead letters: annotations, lookups and the search index
---------------------------------------------------------------------------------------------

-- Written with the receipt that says so. A mark that is NULL is derived from the letter's
-- class. announced: its expiry was announced, for ends_at; retention does not purge it for its age
-- before. A letter that was announced without a time is announced again.
CREATE TABLE recourse.annotations (
    run_id                 uuid PRIMARY KEY,
    tenant                 text NOT NULL CHECK (tenant <> ''),
    held                   bool NOT NULL DEFAULT false,
    hold_reason            text NOT NULL DEFAULT '',
    reprocess_eligible     bool,
    manual_review_required bool,
    mark_reason            text NOT NULL DEFAULT '',
    announced              bool NOT NULL DEFAULT false,
    ends_at                timestamptz,
    CONSTRAINT hold_has_reason CHECK (held = (hold_reason <> '')),
    CONSTRAINT mark_has_reason CHECK ((reprocess_eligible IS NULL AND manual_review_required IS NULL) = (mark_reason = '')),
    CONSTRAINT announced_end   CHECK (ends_at IS NULL OR announced)
) WITH (fillfactor = 70);
COMMENT ON TABLE recourse.annotations IS 'One row per open dead letter with an annotation: hold, marks, announced expiry';
-- Read by the gauge of held dead letters.
CREATE INDEX annotations_held ON recourse.annotations (tenant, run_id) WHERE held;

-- next_at is when the escrow service is asked again; NULL if a person has to find out, and
-- waits_for says why. absent_at is when it first answered that nothing was executed. No
-- decision depends on it: a row that is lost is begun anew.
CREATE TABLE recourse.lookups (
    run_id    uuid   PRIMARY KEY,
    tenant    text   NOT NULL CHECK (tenant <> ''),
    asked     int    NOT NULL CHECK (asked > 0),
    asked_at  timestamptz NOT NULL,
    answer    text   NOT NULL CHECK (answer IN ('executed', 'not_executed', 'unknown')),
    why       text   NOT NULL DEFAULT '',
    moved     bigint NOT NULL DEFAULT 0,
    absent_at timestamptz,
    next_at   timestamptz,
    waits_for text   NOT NULL DEFAULT '',
    CONSTRAINT waits_or_asks CHECK ((next_at IS NULL) = (waits_for <> ''))
) WITH (fillfactor = 70);
COMMENT ON TABLE recourse.lookups IS 'One row per open dead letter of unknown outcome that was looked up, and the last answer';

-- The search index is a projection of runs, cases and annotations, behind the sequencer. It only
-- finds; what a dead letter is, and what may be done with it, is read from runs and cases.

-- signature is the error's. constant holds the parts of the message that all letters of the
-- group have, in lower case, joined by \x01; whole: that is all of it. letters, at_risk and
-- attempts are sums over the letters; that of money is numeric, so that no submitted amounts can
-- keep letters from being listed. The bounds from first_dead to most_lag only grow: they may be
-- wider than the letters are, never narrower. Times are microseconds since 1970. most_lag is the
-- longest time from a letter's death to when its case was last seen.
CREATE TABLE recourse.facet_groups (
    id             bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest         bytea   NOT NULL UNIQUE CHECK (length(digest) = 32),
    tenant         text    NOT NULL CHECK (tenant <> ''),
    status         text    NOT NULL CHECK (status IN ('open', 'forked', 'reconciled', 'superseded')),
    family         text    NOT NULL,
    queue          text    NOT NULL,
    job_type       text    NOT NULL,
    outcome        text    NOT NULL,
    reason_code    text    NOT NULL,
    class          text    NOT NULL,
    error_type     text    NOT NULL,
    currency       text    NOT NULL,
    signature      text    NOT NULL,
    constant       text    NOT NULL,
    whole          bool    NOT NULL,
    replayed_by    text    NOT NULL,
    held           bool    NOT NULL,
    unresolved     bool    NOT NULL,
    eligible       bool    NOT NULL,
    review         bool    NOT NULL,
    letters        bigint  NOT NULL DEFAULT 0 CHECK (letters >= 0),
    at_risk        numeric NOT NULL DEFAULT 0 CHECK (at_risk >= 0),
    attempts       bigint  NOT NULL DEFAULT 0,
    first_dead     bigint,
    last_dead      bigint,
    first_seen     bigint,
    last_seen      bigint,
    least_amount   bigint,
    most_amount    bigint,
    least_attempts int,
    most_attempts  int,
    most_lag       bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.facet_groups IS 'One row per facet group: dead letters whose facets are all equal, counted';
-- Read by every search; it has no column that counting changes.
CREATE INDEX facet_groups_tenant ON recourse.facet_groups (tenant);

-- error_text is stored only if the group's constant is not all of it. at_risk is what stays
-- reserved while the letter is open. trigrams are three characters in a row that the letter's message
-- has and the group's constant has not; with 0 among them, it may contain any.
CREATE TABLE recourse.letters (
    run_id              uuid   PRIMARY KEY,
    tenant              text   NOT NULL CHECK (tenant <> ''),
    facet_group         bigint NOT NULL,
    transaction         text   NOT NULL,
    submission          text   NOT NULL,
    escrow              text   NOT NULL,
    dead_at             timestamptz NOT NULL,
    last_seen_at        timestamptz NOT NULL,
    amount              bigint NOT NULL,
    attempts            int    NOT NULL,
    replays             int    NOT NULL,
    notification_number int    NOT NULL,
    error_text          text   NOT NULL,
    at_risk             bigint NOT NULL DEFAULT 0,
    trigrams            int[]  NOT NULL DEFAULT '{0}'
) WITH (fillfactor = 90, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE recourse.letters IS 'One row per dead letter that can be searched for';
-- Read by a search for one transaction, submission or escrow.
CREATE INDEX letters_transaction ON recourse.letters (tenant, transaction);
CREATE INDEX letters_submission  ON recourse.letters (tenant, submission) WHERE submission <> '';
CREATE INDEX letters_escrow      ON recourse.letters (tenant, escrow) WHERE escrow <> '';
-- Read by a search in one order of all letters of a tenant, with the filter beside each entry.
CREATE INDEX letters_dead     ON recourse.letters (tenant, dead_at, run_id)      INCLUDE (facet_group, amount, attempts, replays, last_seen_at);
CREATE INDEX letters_seen     ON recourse.letters (tenant, last_seen_at, run_id) INCLUDE (facet_group, amount, attempts, replays, dead_at);
CREATE INDEX letters_amount   ON recourse.letters (tenant, amount, run_id)       INCLUDE (facet_group, attempts, replays, dead_at, last_seen_at);
CREATE INDEX letters_attempts ON recourse.letters (tenant, attempts, run_id)     INCLUDE (facet_group, amount, replays, dead_at, last_seen_at);
-- Read by a search that merges the few facet groups its filter leaves; the first also adds up.
CREATE INDEX letters_group_dead     ON recourse.letters (facet_group, dead_at, run_id) INCLUDE (amount, attempts, replays, last_seen_at, at_risk);
CREATE INDEX letters_group_seen     ON recourse.letters (facet_group, last_seen_at, run_id);
CREATE INDEX letters_group_amount   ON recourse.letters (facet_group, amount, run_id);
CREATE INDEX letters_group_attempts ON recourse.letters (facet_group, attempts, run_id);
-- Read by a search for a substring of three characters or more.
CREATE INDEX letters_trigrams ON recourse.letters USING gin (trigrams) WITH (gin_pending_list_limit = 256);

-- substrings are the substrings of one and two characters, too short for a trigram, that messages with
-- this constant contain and the constant does not. They only grow. NULL: a message may contain any.
CREATE TABLE recourse.short_substrings (
    tenant     text NOT NULL CHECK (tenant <> ''),
    constant   text NOT NULL,
    substrings text[],
    PRIMARY KEY (tenant, constant)
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.short_substrings IS 'One row per constant of facet groups: the short substrings of their messages';

-- Keeps the counts of facet groups, whoever changes letters. An update adds what is there after
-- it, and subtracts what was there before. Bounds take in what is there after it.
-- +goose StatementBegin
CREATE FUNCTION recourse.count_letters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        UPDATE recourse.facet_groups s SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries
        FROM (SELECT facet_group, count(*) AS n, sum(at_risk) AS risk, sum(attempts) AS tries FROM before_rows GROUP BY facet_group) d WHERE s.id = d.facet_group;
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        UPDATE recourse.facet_groups s SET letters = s.letters - d.n, at_risk = s.at_risk - d.risk, attempts = s.attempts - d.tries
        FROM (SELECT facet_group, sum(n) AS n, sum(risk) AS risk, sum(tries) AS tries FROM (
                SELECT facet_group, 1 AS n, at_risk AS risk, attempts AS tries FROM before_rows UNION ALL SELECT facet_group, -1, -at_risk, -attempts FROM after_rows) u
              GROUP BY facet_group HAVING sum(n) <> 0 OR sum(risk) <> 0 OR sum(tries) <> 0) d
        WHERE s.id = d.facet_group;
    END IF;
    UPDATE recourse.facet_groups s
    SET letters = s.letters + d.n, at_risk = s.at_risk + d.risk, attempts = s.attempts + d.tries,
      first_dead = least(s.first_dead, d.first_dead), last_dead = greatest(s.last_dead, d.last_dead),
      first_seen = least(s.first_seen, d.first_seen), last_seen = greatest(s.last_seen, d.last_seen),
      least_amount = least(s.least_amount, d.least_amount), most_amount = greatest(s.most_amount, d.most_amount),
      least_attempts = least(s.least_attempts, d.least_attempts), most_attempts = greatest(s.most_attempts, d.most_attempts),
      most_lag = greatest(s.most_lag, d.most_lag)
    FROM (SELECT facet_group, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE 0 END AS n, CASE TG_OP WHEN 'INSERT' THEN sum(at_risk) ELSE 0 END AS risk,
            CASE TG_OP WHEN 'INSERT' THEN sum(attempts) ELSE 0 END AS tries,
            (extract(epoch FROM min(dead_at)) * 1000000)::bigint AS first_dead, (extract(epoch FROM max(dead_at)) * 1000000)::bigint AS last_dead,
            (extract(epoch FROM min(last_seen_at)) * 1000000)::bigint AS first_seen, (extract(epoch FROM max(last_seen_at)) * 1000000)::bigint AS last_seen,
            min(amount) AS least_amount, max(amount) AS most_amount, min(attempts) AS least_attempts, max(attempts) AS most_attempts,
            (extract(epoch FROM max(last_seen_at - dead_at)) * 1000000)::bigint AS most_lag
          FROM after_rows GROUP BY facet_group) d
    WHERE s.id = d.facet_group AND (d.n > 0 OR s.first_dead IS NULL OR d.first_dead < s.first_dead OR d.last_dead > s.last_dead OR d.first_seen < s.first_seen OR d.last_seen > s.last_seen
      OR d.least_amount < s.least_amount OR d.most_amount > s.most_amount OR d.least_attempts < s.least_attempts OR d.most_attempts > s.most_attempts OR d.most_lag > s.most_lag);
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- Every change of letters counts.
CREATE TRIGGER counts_insert AFTER INSERT ON recourse.letters REFERENCING NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters();
CREATE TRIGGER counts_update AFTER UPDATE ON recourse.letters REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters();
CREATE TRIGGER counts_delete AFTER DELETE ON recourse.letters REFERENCING OLD TABLE AS before_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.count_letters();

-- Forgets the short substrings of messages whose writer does not set recourse.short_substrings, which
-- says that it stored them itself.
-- +goose StatementBegin
CREATE FUNCTION recourse.forget_short_substrings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('recourse.short_substrings', true) IS DISTINCT FROM 'stored' THEN
        INSERT INTO recourse.short_substrings AS t (tenant, constant)
        SELECT DISTINCT s.tenant, s.constant FROM after_rows a JOIN recourse.facet_groups s ON s.id = a.facet_group WHERE NOT s.whole
        ON CONFLICT (tenant, constant) DO UPDATE SET substrings = NULL WHERE t.substrings IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- Every message that is written or changed is checked.
CREATE TRIGGER forgets_on_insert AFTER INSERT ON recourse.letters REFERENCING NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.forget_short_substrings();
CREATE TRIGGER forgets_on_update AFTER UPDATE ON recourse.letters REFERENCING NEW TABLE AS after_rows
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.forget_short_substrings();

-- Whoever projects locks the row.
CREATE TABLE recourse.projected (
    name text   PRIMARY KEY,
    last bigint NOT NULL CHECK (last >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.projected IS 'One row per projection of event_log: the last number it includes';
INSERT INTO recourse.projected (name, last) VALUES ('letters', 0);

---------------------------------------------------------------------------------------------
-- Bulk plans
---------------------------------------------------------------------------------------------

-- asked is what is to be done, as canonical JSON; hash covers it, who asks and why, and every
-- item. number names the advisory lock of whoever works on the plan. settled is false while items
-- of a cancelled plan may have been acted on without being marked so. planned_key and started_key
-- are prefixes of keys, empty if no key proves who it was. settles: it has items of settlements.
-- people is how many it took to start it, 0 if it moves no money; declared: one of them is named
-- by the caller, not proved by a key. incident is for what one person started it who needs a second
-- one, and started_why the reason.
CREATE TABLE recourse.bulks (
    id          uuid   PRIMARY KEY,
    number      int    GENERATED ALWAYS AS IDENTITY UNIQUE,
    tenant      text   NOT NULL CHECK (tenant <> ''),
    state       text   NOT NULL CHECK (state IN ('planned', 'running', 'paused', 'done', 'cancelled')),
    settled     bool   NOT NULL DEFAULT true,
    action      text   NOT NULL CHECK (action <> ''),
    asked       text   NOT NULL,
    actor       text   NOT NULL CHECK (actor <> ''),
    reason      text   NOT NULL CHECK (reason <> ''),
    parallel    int    NOT NULL CHECK (parallel > 0),
    throttle    int    NOT NULL CHECK (throttle >= 0),
    items       bigint NOT NULL CHECK (items >= 0),
    hash        bytea  NOT NULL CHECK (length(hash) = 32),
    planned_at  timestamptz NOT NULL,
    planned_key text   NOT NULL DEFAULT '',
    started_by  text   NOT NULL DEFAULT '',
    started_key text   NOT NULL DEFAULT '',
    started_why text   NOT NULL DEFAULT '',
    started_at  timestamptz,
    changed_by  text   NOT NULL DEFAULT '',
    changed_why text   NOT NULL DEFAULT '',
    changed_at  timestamptz,
    ended_at    timestamptz,
    settles     bool   NOT NULL DEFAULT true,
    people      int    NOT NULL DEFAULT 0 CHECK (people BETWEEN 0 AND 2),
    declared    bool   NOT NULL DEFAULT false,
    incident    text   NOT NULL DEFAULT '',
    CONSTRAINT started_by_somebody CHECK ((started_at IS NOT NULL) = (started_by <> '')),
    CONSTRAINT works_when_started  CHECK (started_at IS NOT NULL OR state IN ('planned', 'cancelled')),
    CONSTRAINT ends_in_the_end     CHECK ((ended_at IS NOT NULL) = (state IN ('done', 'cancelled')))
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.bulks IS 'One row per bulk plan: one action for many dead letters';
-- Read by the list of a tenant's plans.
CREATE INDEX bulks_tenant ON recourse.bulks (tenant, id);
-- Read by the loop that works on plans.
CREATE INDEX bulks_due ON recourse.bulks (number) WHERE state = 'running' OR NOT settled;
-- Read by the gauge of plans that one person started for an incident.
CREATE INDEX bulks_incident ON recourse.bulks (id) WHERE incident <> '';

-- seq and link are the head of the case when the plan was made, which guards the action. gate
-- refused the item then. outcome is written once.
CREATE TABLE recourse.bulk_items (
    bulk_id  uuid   NOT NULL,
    position bigint NOT NULL CHECK (position >= 1),
    run_id   uuid   NOT NULL,
    case_id  uuid   NOT NULL,
    seq      bigint NOT NULL,
    link     bytea  NOT NULL,
    amount   bigint NOT NULL,
    currency text   NOT NULL,
    gate     text   NOT NULL DEFAULT '',
    outcome  text   NOT NULL DEFAULT '',
    new_run  uuid,
    error    text   NOT NULL DEFAULT '',
    PRIMARY KEY (bulk_id, position)
) WITH (fillfactor = 80);
COMMENT ON TABLE recourse.bulk_items IS 'One row per dead letter of a bulk plan, in the order of the plan';
-- Read for the items that are still to be acted on.
CREATE INDEX bulk_items_left ON recourse.bulk_items (bulk_id, position) WHERE outcome = '';
-- Read for the items of one outcome.
CREATE INDEX bulk_items_ended ON recourse.bulk_items (bulk_id, outcome, position) WHERE outcome <> '';

-- word is, when the plan was made (ran is false), the gate that refused the items, empty if none
-- did; and when it ran, their outcome.
CREATE TABLE recourse.bulk_counts (
    bulk_id  uuid   NOT NULL,
    ran      bool   NOT NULL,
    word     text   NOT NULL,
    currency text   NOT NULL,
    items    bigint NOT NULL,
    amount   bigint NOT NULL,
    PRIMARY KEY (bulk_id, ran, word, currency)
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.bulk_counts IS 'How many items of a bulk plan, and how much money, by gate and by outcome';

---------------------------------------------------------------------------------------------
-- Rules, policies and other settings
---------------------------------------------------------------------------------------------

-- definition is JSON. version counts the changes and never begins anew: a deleted rule keeps its
-- row, so that a new one of the same name continues its counts.
CREATE TABLE recourse.rules (
    tenant     text   NOT NULL CHECK (tenant <> ''),
    name       text   NOT NULL CHECK (name <> ''),
    version    bigint NOT NULL CHECK (version >= 0),
    enabled    bool   NOT NULL,
    deleted    bool   NOT NULL,
    definition text   NOT NULL,
    actor      text   NOT NULL,
    reason     text   NOT NULL,
    at         timestamptz NOT NULL,
    PRIMARY KEY (tenant, name),
    CONSTRAINT deleted_is_off CHECK (NOT (deleted AND enabled))
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.rules IS 'One row per rule: what is done without a person with dead letters of a tenant';
-- Read by the replay runner.
CREATE INDEX rules_enabled ON recourse.rules (tenant, name) WHERE enabled;

-- root is the first run of the lineage. Written by the transaction that forks the letter.
CREATE TABLE recourse.rule_replays (
    root    uuid NOT NULL,
    rule    text NOT NULL CHECK (rule <> ''),
    tenant  text NOT NULL CHECK (tenant <> ''),
    replays int  NOT NULL CHECK (replays >= 1),
    last_at timestamptz NOT NULL,
    PRIMARY KEY (root, rule)
) WITH (fillfactor = 80);
COMMENT ON TABLE recourse.rule_replays IS 'How often a rule has replayed the dead letters of a lineage of runs';

-- Replaces the configured policy. version counts the changes, and is the sequence of the last
-- receipt about them.
CREATE TABLE recourse.policies (
    tenant  text   NOT NULL CHECK (tenant <> ''),
    family  text   NOT NULL CHECK (family <> ''),
    case_id uuid   NOT NULL,
    version bigint NOT NULL CHECK (version >= 0),
    policy  text   NOT NULL,
    actor   text   NOT NULL,
    reason  text   NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (tenant, family)
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.policies IS 'One row per retry policy that a person set for a family of a tenant';

-- A tenant without a row has two. The receipts of its operation log say who set it, and why.
CREATE TABLE recourse.people (
    tenant text PRIMARY KEY CHECK (tenant <> ''),
    people int  NOT NULL CHECK (people IN (1, 2)),
    actor  text NOT NULL CHECK (actor <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    at     timestamptz NOT NULL
);
COMMENT ON TABLE recourse.people IS 'How many people it takes to state or free money by hand, where a tenant changed it';

---------------------------------------------------------------------------------------------
-- Access
---------------------------------------------------------------------------------------------

-- digest is the SHA-256 of the whole token; the secret is not stored. Keys are never deleted:
-- receipts name them. successor_of is the prefix of the key that this one replaces, and works
-- beside. The role platform may read what belongs to no tenant: asynqmon.
CREATE TABLE recourse.keys (
    id           uuid  PRIMARY KEY,
    prefix       text  NOT NULL UNIQUE CHECK (prefix ~ '^[0-9A-Za-z]{12}$'),
    digest       bytea NOT NULL CHECK (length(digest) = 32),
    tenant       text  NOT NULL CHECK (tenant <> ''),
    principal    text  NOT NULL CHECK (principal <> ''),
    roles        text[] NOT NULL CHECK (cardinality(roles) > 0 AND roles <@ ARRAY['submitter', 'operator', 'approver', 'auditor', 'admin', 'platform']),
    created_at   timestamptz NOT NULL,
    created_by   text  NOT NULL CHECK (created_by <> ''),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    revoked_by   text  NOT NULL DEFAULT '',
    last_used_at timestamptz,
    successor_of text  NOT NULL DEFAULT '',
    CONSTRAINT revoked_by_somebody CHECK ((revoked_at IS NOT NULL) = (revoked_by <> ''))
) WITH (fillfactor = 70);
COMMENT ON TABLE recourse.keys IS 'One row per access key';
-- Read by the list of a tenant's keys.
CREATE INDEX keys_tenant ON recourse.keys (tenant, created_at, id);

-- A request without a status is being answered by whoever holds its token.
CREATE TABLE recourse.requests (
    tenant  text  NOT NULL CHECK (tenant <> ''),
    key     text  NOT NULL CHECK (key <> ''),
    digest  bytea NOT NULL CHECK (length(digest) = 32),
    token   uuid  NOT NULL,
    began   timestamptz NOT NULL,
    status  int,
    headers text  NOT NULL DEFAULT '',
    body    bytea,
    CONSTRAINT answered CHECK ((status IS NULL) = (body IS NULL)),
    PRIMARY KEY (tenant, key)
);
COMMENT ON TABLE recourse.requests IS 'One row per request with an Idempotency-Key, and its response';
-- Read by the removal of expired requests.
CREATE INDEX requests_began ON recourse.requests (began);

---------------------------------------------------------------------------------------------
-- Processes and the database itself
---------------------------------------------------------------------------------------------

-- beat rises with every heartbeat; when it stands still, an observer marks the session lost, and
-- it claims nothing any more. The rest is what the process reports of itself: by how much its wall
-- clock differs from the database's (NULL: not measured), a random marker in its Redis (NULL: not
-- known), the queues it takes runs from, why it claims nothing, the escrow services it calls, and
-- the role it is connected as.
CREATE TABLE recourse.sessions (
    id              uuid   PRIMARY KEY,
    worker          text   NOT NULL,
    beat            bigint NOT NULL DEFAULT 0,
    lost            bool   NOT NULL DEFAULT false,
    started_at      timestamptz NOT NULL,
    clock_offset_us bigint,
    redis           text,
    beat_at         timestamptz,
    queues          text[] NOT NULL DEFAULT '{}',
    barred          text   NOT NULL DEFAULT '',
    targets         text[] NOT NULL DEFAULT '{}',
    role            text   NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
COMMENT ON TABLE recourse.sessions IS 'One row per process that executes, or did and was marked lost';

-- id tells the Redis of this database from another's. timeline is that of the server's log when it
-- was last seen: a failover or a restore begins a new one, and may have lost what was committed last
-- on the one before. demonstration: the escrow service pays nothing real, for good. The first process
-- that executes inserts the row, so that a data-only restore finds none in its way.
CREATE TABLE recourse.installation (
    one             bool   PRIMARY KEY DEFAULT true CHECK (one),
    id              uuid   NOT NULL DEFAULT gen_random_uuid(),
    timeline        bigint NOT NULL DEFAULT 0,
    timeline_before bigint NOT NULL DEFAULT 0,
    timeline_seen   timestamptz,
    demonstration   bool   NOT NULL DEFAULT false
);
COMMENT ON TABLE recourse.installation IS 'One row: which database this is';

-- The newest row counts; an empty name is none. Only the owner writes it. It has no key, so that a
-- data-only restore finds nothing in its way.
CREATE TABLE recourse.app_roles (
    name   text NOT NULL,
    set_by text NOT NULL DEFAULT session_user,
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE recourse.app_roles IS 'The roles that migrate was told to grant what processes need';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
