-- +goose Up

-- The role that a process is connected as, as it says with each beat: migrate takes nothing from
-- a role that a process works as. Empty of a process that was begun by a program from before.
ALTER TABLE recourse.sessions ADD COLUMN role text NOT NULL DEFAULT '';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
