-- +goose Up

-- clock_read is how far the database's clock has come: heartbeats write it.
ALTER TABLE recourse.installation ADD COLUMN clock_read timestamptz;
COMMENT ON COLUMN recourse.installation.clock_read IS 'the last time that a process read from the clock of the database';
-- clock_set_back is the highest time from which the clock was set back.
ALTER TABLE recourse.installation ADD COLUMN clock_set_back timestamptz;
COMMENT ON COLUMN recourse.installation.clock_set_back IS 'the latest time that the clock had shown when it was found set back by over a second: the age of what was recorded before is unknown';

-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
