-- +goose Up

-- What an escrow holds and what its cases have committed of it: reserved,
-- released and refunded together. A fact about money is recorded even when it
-- exceeds what is held; it raises breached with it, so that no CHECK can fail it.
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

-- One row a case: one lock, one chain head, one settlement state. last_seq and
-- last_link are the version that every move expects.
CREATE TABLE recourse.cases (
    id            uuid   PRIMARY KEY,
    tenant        text   NOT NULL CHECK (tenant <> ''),
    kind          text   NOT NULL CHECK (kind IN ('settlement', 'plain')),
    subject       text   NOT NULL CHECK (subject <> ''),
    escrow_id     bigint REFERENCES recourse.escrows,
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
    run_id        uuid   NOT NULL,
    unknown_open  int    NOT NULL DEFAULT 0 CHECK (unknown_open >= 0),
    epoch         int    NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    first_sent_at timestamptz,
    last_seq      bigint NOT NULL CHECK (last_seq >= 1),
    last_link     bytea  NOT NULL CHECK (length(last_link) = 32),
    CONSTRAINT settlement_has_escrow CHECK ((kind = 'settlement') = (escrow_id IS NOT NULL)),
    UNIQUE (tenant, kind, subject)
) WITH (fillfactor = 50);
CREATE INDEX cases_escrow ON recourse.cases (escrow_id) WHERE escrow_id IS NOT NULL;

-- The request bytes of an operation key: written once, sent on every attempt.
CREATE TABLE recourse.operations (
    key     bytea PRIMARY KEY CHECK (length(key) = 32),
    case_id uuid  NOT NULL,
    request bytea NOT NULL CHECK (length(request) <= 65536)
);

-- One row a process that works. Its counter rises every second; when it stands
-- still an observer marks the session lost, and it claims nothing any more.
CREATE TABLE recourse.sessions (
    id         uuid   PRIMARY KEY,
    worker     text   NOT NULL,
    beat       bigint NOT NULL DEFAULT 0,
    lost       bool   NOT NULL DEFAULT false,
    started_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE recourse.runs (
    id            uuid PRIMARY KEY,
    case_id       uuid NOT NULL REFERENCES recourse.cases,
    tenant        text NOT NULL CHECK (tenant <> ''),
    family        text NOT NULL,
    retry_key     text NOT NULL,
    operation_key bytea CHECK (length(operation_key) = 32),
    queue         text NOT NULL,
    target        text NOT NULL,
    policy        text NOT NULL,
    payload       bytea CHECK (length(payload) <= 65536),
    parent_id     uuid,
    state         text NOT NULL CHECK (state IN ('pending', 'running', 'scheduled', 'succeeded', 'dead_lettered', 'cancelled')),
    live          bool NOT NULL,
    letter        text NOT NULL DEFAULT '' CHECK (letter IN ('', 'open', 'forked', 'reconciled', 'superseded', 'purged')),
    holds         bool NOT NULL,
    attempt_count int  NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    budget_spent  int  NOT NULL DEFAULT 0 CHECK (budget_spent >= 0),
    recoveries    int  NOT NULL DEFAULT 0 CHECK (recoveries >= 0),
    class         text NOT NULL DEFAULT '' CHECK (class IN ('', 'executed', 'not_executed', 'unknown')),
    token         uuid,
    last_move     uuid NOT NULL,
    session_id    uuid,
    unheard       bigint NOT NULL DEFAULT 0,
    cancel_asked  bool NOT NULL DEFAULT false,
    cancel_by     text NOT NULL DEFAULT '',
    cancel_reason text NOT NULL DEFAULT '',
    CONSTRAINT cancel_has_asker CHECK (cancel_asked = (cancel_by <> '')),
    due_at        timestamptz NOT NULL,
    dead_at       timestamptz,
    bell          int  NOT NULL DEFAULT 1,
    reason        text NOT NULL DEFAULT '',
    error_type    text NOT NULL DEFAULT '',
    error_code    text NOT NULL DEFAULT '',
    error_text    text NOT NULL DEFAULT '',
    CONSTRAINT live_is_state   CHECK (live = (state IN ('pending', 'running', 'scheduled'))),
    CONSTRAINT letter_is_death CHECK ((letter <> '') = (state = 'dead_lettered')),
    CONSTRAINT death_has_time  CHECK ((dead_at IS NOT NULL) = (state = 'dead_lettered')),
    CONSTRAINT holds_is_state  CHECK (holds = (live OR letter = 'open')),
    CONSTRAINT budgets_in_attempts CHECK (budget_spent + recoveries <= attempt_count)
) WITH (fillfactor = 70);
-- A claim changes neither a column nor a predicate of these, which keeps it a HOT update.
CREATE UNIQUE INDEX runs_key      ON recourse.runs (tenant, family, retry_key) WHERE holds;
CREATE UNIQUE INDEX runs_one_case ON recourse.runs (case_id) WHERE holds;
CREATE INDEX runs_due  ON recourse.runs (due_at, id) WHERE live;
CREATE INDEX runs_dead ON recourse.runs (tenant, dead_at, id) WHERE dead_at IS NOT NULL;
CREATE INDEX runs_case ON recourse.runs (case_id, id);

-- The trail. body is the canonical text that the link covers, byte for byte; the
-- other columns repeat it for reading. A receipt is written only by the statement
-- that moves its case's head, so that no foreign key is needed to keep it there.
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

-- +goose StatementBegin
CREATE FUNCTION recourse.refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'recourse: % is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
-- +goose StatementEnd
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON recourse.receipts
    FOR EACH STATEMENT EXECUTE FUNCTION recourse.refuse_rewrite();
REVOKE UPDATE, DELETE, TRUNCATE ON recourse.receipts FROM PUBLIC, CURRENT_USER;

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
