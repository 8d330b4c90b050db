package main

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/internal/chaos/worker"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// annotate returns a drive in which a worker annotates the one open letter.
func annotate(do string) func(*fixture, *workerProcess) {
	return func(s *fixture, h *workerProcess) { s.command(h, do, s.onlyRun("letter = 'open'")) }
}

// unlisted leaves an open letter that is missing in the list of letters, and no worker.
func unlisted(s *fixture) {
	h := s.worker("")
	s.submit(h, adjudication(1, "refused", ""))
	s.untilRun("dead_lettered")
	s.until("the letter is listed, and nothing waits to be", listed+` AND NOT EXISTS (SELECT FROM recourse.outbox)
		AND (SELECT max(last) FROM recourse.event_log) = (SELECT last FROM recourse.projected WHERE name = 'letters')`)
	s.terminate(h)
	s.exec(`DELETE FROM recourse.letters`)
}

// rebuild rebuilds the list. After a kill the next worker rebuilds it again.
func rebuild(s *fixture, h *workerProcess) { s.command(h, worker.Rebuild, "") }

const listed = `SELECT EXISTS (SELECT FROM recourse.letters)`

// placeHold leaves an open letter that is held, and no worker.
func placeHold(s *fixture) {
	letter(s)
	h := s.worker("")
	annotate(worker.Hold)(s, h)
	s.terminate(h)
}

// The annotations agree with the receipts. Nobody repeats the request here, so it was
// executed once or not at all.
const (
	heldOnce = `SELECT count(*) FILTER (WHERE subtype = 'hold-placed') - count(*) FILTER (WHERE subtype = 'hold-released')
		= (SELECT count(*) FROM recourse.annotations WHERE held) AND count(*) FILTER (WHERE subtype = 'hold-placed') <= 1 FROM recourse.receipts`
	markedOnce = `SELECT count(*) = (SELECT count(*) FROM recourse.annotations WHERE manual_review_required) AND count(*) <= 1
		FROM recourse.receipts WHERE subtype = 'marked'`
	purgedOnce = `SELECT count(*) = (SELECT count(*) FROM recourse.runs WHERE letter = 'purged') AND count(*) <= 1
		FROM recourse.receipts WHERE subtype = 'purged'`
	// A plan that was started continues by itself.
	purgedByPlan = `SELECT NOT EXISTS (SELECT FROM recourse.bulks WHERE state = 'running' OR NOT settled)
		AND (SELECT count(*) FROM recourse.runs WHERE letter = 'purged') = (SELECT count(*) FROM recourse.bulk_items WHERE outcome = 'done')
		AND NOT EXISTS (SELECT FROM recourse.bulks WHERE state = 'done' AND EXISTS (SELECT FROM recourse.runs WHERE letter = 'open'))`
	// Retention continues by itself.
	expiredOnce = `SELECT count(*) FILTER (WHERE subtype = 'retention-ending') = 1 AND count(*) FILTER (WHERE subtype = 'retention-expired') = 1
		AND (SELECT bool_and(letter = 'purged') FROM recourse.runs) AND NOT EXISTS (SELECT FROM recourse.annotations) FROM recourse.receipts`
)

// archivedWhatWentBy checks that every removed letter is in the archive.
func (s *fixture) archivedWhatWentBy(folder string) {
	s.t.Helper()
	a, err := retention.OpenDir(folder)
	if err != nil {
		s.t.Fatal(err)
	}
	redis, err := asynq.ParseRedisURI(s.redis)
	if err != nil {
		s.t.Fatal(err)
	}
	reader, err := postadjudication.Open(s.ctx(), postadjudication.Config{DatabaseURL: s.url, Redis: redis, Archive: a})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		if err := reader.Close(); err != nil {
			s.t.Error(err)
		}
	}()
	kept := map[string]bool{}
	for _, family := range []string{postadjudication.Family, jobs.Family} {
		for l, err := range reader.As("chaos", "").DeadLetters.Archived(context.Background(), family) {
			if err != nil {
				s.t.Fatal(err)
			}
			kept[l.Run.String()] = true
		}
	}
	rows, err := s.db.Query(`SELECT id FROM recourse.runs WHERE letter = 'purged'`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			s.t.Fatal(err)
		}
		if !kept[id] {
			s.t.Errorf("letter %s is gone, and in no archive", id)
		}
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
}
