-- +goose Up

-- The role that processes connect as, which owns nothing: migrate grants it what they need,
-- again after every later migration. The newest row holds; an empty name is none. Only the
-- owner writes it. It has no key, so that a data-only restore finds nothing in its way.
CREATE TABLE recourse.app_roles (
    name   text        NOT NULL,
    set_by text        NOT NULL DEFAULT session_user,
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
