-- +goose Up

-- Runs that somebody asked to cancel while a call was made, by a program that left no
-- receipt of being asked. Of every other run that is marked so a receipt says by whom.
CREATE TABLE recourse.cancels_before_receipts (run_id uuid PRIMARY KEY);
INSERT INTO recourse.cancels_before_receipts (run_id) SELECT id FROM recourse.runs WHERE cancel_asked;


-- +goose Down
SELECT 1 / 0 AS migrations_go_forward_only;
