-- +goose Up

-- What people have said of an open letter: one row a letter that somebody touched,
-- written with the receipt that says so. A mark that is NULL is derived from the
-- letter's class. warned is when its end of retention was announced.
CREATE TABLE recourse.desk (
    run_id                 uuid PRIMARY KEY,
    tenant                 text NOT NULL CHECK (tenant <> ''),
    held                   bool NOT NULL DEFAULT false,
    hold_reason            text NOT NULL DEFAULT '',
    reprocess_eligible     bool,
    manual_review_required bool,
    mark_reason            text NOT NULL DEFAULT '',
    warned                 bool NOT NULL DEFAULT false,
    CONSTRAINT hold_has_reason CHECK (held = (hold_reason <> '')),
    CONSTRAINT mark_has_reason CHECK ((reprocess_eligible IS NULL AND manual_review_required IS NULL) = (mark_reason = ''))
) WITH (fillfactor = 70);
CREATE INDEX desk_held ON recourse.desk (tenant, run_id) WHERE held;

-- The pruner walks open letters of a family by their age.
CREATE INDEX runs_letters ON recourse.runs (family, dead_at, id) WHERE letter = 'open';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
