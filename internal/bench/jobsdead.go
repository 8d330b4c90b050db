package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
)

const (
	deadSpan    = 170 * 24 * time.Hour // over which the jobs died
	deadRetried = 10_000               // jobs of the bulk retry, at most
	deadQueue   = "retried"            // theirs
	deadCursors = 10                   // pages before the one that a cursor is measured with
	dayOfDeaths = 24 * time.Hour
)

// deadKinds are what the dead jobs differ in, each with its share of a hundred.
var deadKinds = struct{ queues, types, errors []sharedName }{
	[]sharedName{{"mail", 55}, {"billing", 30}, {"reports", 14}, {"rare", 1}},
	[]sharedName{{"mail.send", 60}, {"mail.digest", 25}, {"invoice.make", 14}, {"report.build", 1}},
	[]sharedName{{"smtp", 70}, {"timeout", 20}, {"http.502", 9}, {"panic", 1}},
}

type sharedName struct {
	name  string
	share int
}

// jobsDead measures pages of dead jobs over HTTP, with every filter, then retries many of them at once while
// the server is killed.
func (j job) jobsDead(ctx context.Context) (m metrics, err error) {
	server, err := j.startServer(ctx, retainDead...)
	if err != nil {
		return nil, err
	}
	defer func() { server.kill() }()
	redis, err := asynq.ParseRedisURI(j.RedisURL)
	if err != nil {
		return nil, err
	}
	s, err := postadjudication.Open(ctx, postadjudication.Config{DatabaseURL: j.DatabaseURL, Redis: redis, Jobs: true})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("postgres", j.OwnerURL)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	defer func() { err = errors.Join(err, s.Close(), db.Close()) }()
	m = metrics{}
	retried := min(deadRetried, max(1, j.Tasks/10))
	began := time.Now()
	if err := j.makeDeadJobs(ctx, server.client, retried); err != nil {
		return nil, err
	}
	m[submittedSeconds] = time.Since(began).Seconds()
	began = time.Now()
	if err := untilListed(ctx, server.client, db); err != nil {
		return nil, err
	}
	m[listedSeconds] = time.Since(began).Seconds()
	if err := execute(ctx, j.OwnerURL, `VACUUM ANALYZE`); err != nil {
		return nil, err
	}
	if err := measureDeadPages(ctx, server.client, j.Tasks, m); err != nil {
		return nil, err
	}
	if err := j.retryUnderKills(ctx, s, db, server, m); err != nil {
		return nil, err
	}
	return m, j.verifyDead(ctx, db, retried, m)
}

// untilListed asks for dead jobs until all are in the list of dead letters: before it answers, the server
// adds to the list what is missing, also if so much is missing that its client gets no answer in time.
func untilListed(ctx context.Context, c jobClient, db *sql.DB) error {
	for {
		var page deadPage
		answered := c.get(ctx, "/dead-letter?limit=1", &page) == nil
		var missing bool
		err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM recourse.projected WHERE name = 'letters' AND last < (SELECT max(last) FROM recourse.event_log))`).Scan(&missing)
		if err != nil || answered && !missing {
			return err
		}
		if err := sleep(ctx, workerPoll); err != nil {
			return err
		}
	}
}

// retainDead keeps all dead jobs: without it those that are too many for a queue would be removed.
var retainDead = []string{"--retain", "ojs=P3650D/2000000"}

// makeDeadJobs lets a job of each kind die, and copies them by their shares.
func (j job) makeDeadJobs(ctx context.Context, c jobClient, retried int) error {
	id, err := c.letDie(ctx, deadQueue, "mail.send", "smtp")
	if err != nil {
		return err
	}
	step := func(count int) time.Duration { return deadSpan / time.Duration(count) }
	all := []jobCopies{{of: id, count: retried - 1, step: step(retried)}}
	left := j.Tasks - retried
	for _, queue := range deadKinds.queues {
		for _, kind := range deadKinds.types {
			for _, failure := range deadKinds.errors {
				id, err := c.letDie(ctx, queue.name, kind.name, failure.name)
				if err != nil {
					return err
				}
				count := max(1, (j.Tasks-retried)*queue.share*kind.share*failure.share/1_000_000)
				left -= count
				all = append(all, jobCopies{of: id, count: count - 1, step: step(count)})
			}
		}
	}
	all[1].count += left // of the most common kind, by which the shares round to the whole
	if all[1].count < 0 {
		return fmt.Errorf("%d dead jobs are too few to have all kinds", j.Tasks)
	}
	return copyJobs(ctx, j.OwnerURL, all...)
}

// letDie enqueues a job, fetches it, and says that it failed for good.
func (c jobClient) letDie(ctx context.Context, queue, kind, failure string) (string, error) {
	id, err := c.enqueue(ctx, fmt.Appendf(nil, `{"type":%q,"queue":%q,"args":["ada@example.org"],"retry":{"max_attempts":1,"on_exhaustion":"dead_letter"}}`, kind, queue))
	if err != nil {
		return "", err
	}
	got, err := c.fetch(ctx, wantOne(queue, 0))
	if err == nil {
		err = equal("fetched jobs", len(got), 1)
	}
	if err != nil {
		return "", err
	}
	_, err = c.nack(ctx, id, 0, fmt.Sprintf(`{"type":%q,"code":%q,"message":"it failed with %s"}`, failure, failure, failure))
	return id, err
}

// deadFilters has each kind of filter, with common and rare values.
func deadFilters(now time.Time) map[string]url.Values {
	v := func(pairs ...string) url.Values {
		out := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			out.Set(pairs[i], pairs[i+1])
		}
		return out
	}
	at := func(days int) string { return now.Add(-time.Duration(days) * dayOfDeaths).UTC().Format(time.RFC3339) }
	return map[string]url.Values{
		"none": v(), "queue common": v("queue", "mail"), "queue rare": v("queue", "rare"), "queue none": v("queue", "nothing"),
		"type common": v("type", "mail.send"), "type rare": v("type", "report.build"), "type prefix": v("type", "mail.*"),
		"error common": v("error_type", "smtp"), "error rare": v("error_type", "panic"), "since": v("since", at(60)), "until": v("until", at(60)),
		"month": v("since", at(60), "until", at(30)), "day": v("since", at(60), "until", at(59)),
		"rare of all": v("queue", "rare", "type", "report.build", "error_type", "panic"), "all at once": v("queue", "mail", "type", "mail.*", "error_type", "smtp", "since", at(90), "until", at(10)),
	}
}

// deadPage is an answer of GET /dead-letter, as far as it is looked at.
type deadPage struct {
	Jobs []struct {
		ID string `json:"id"`
	} `json:"jobs"`
	Total      int `json:"total"`
	number     int // from 0
	Pagination struct {
		NextCursor string `json:"next_cursor"`
	} `json:"pagination"`
}

// deadPages names the pages that are measured: the first, two with an offset, of ten thousand and of half of
// the jobs or of what an offset may leave out, and the one after deadCursors others.
var deadPages = []string{"first", "ten thousandth", "half", "after a cursor"}

// measureDeadPages measures, for each filter, the pages of deadPages.
func measureDeadPages(ctx context.Context, c jobClient, jobs int, m metrics) error {
	times := min(lettersRepeats, 1+jobs/10_000)
	for name, filter := range deadFilters(time.Now()) {
		filter.Set("limit", fmt.Sprint(lettersPageSize))
		first, err := measureDeadPage(ctx, c, filter, name+"|"+deadPages[0], times, m)
		if err != nil {
			return err
		}
		for page, offset := range map[string]int{deadPages[1]: 10_000, deadPages[2]: min(first.Total/2, deadletter.MaxSkip)} {
			filter.Set("offset", fmt.Sprint(min(offset, max(0, first.Total-1))))
			if _, err := measureDeadPage(ctx, c, filter, name+"|"+page, times, m); err != nil {
				return err
			}
		}
		filter.Del("offset")
		for page := first; page.Pagination.NextCursor != "" && page.number < deadCursors; {
			filter.Set("cursor", page.Pagination.NextCursor)
			number := page.number + 1
			page = deadPage{number: number}
			if err := c.get(ctx, "/dead-letter?"+filter.Encode(), &page); err != nil {
				return err
			}
		}
		if _, err := measureDeadPage(ctx, c, filter, name+"|"+deadPages[3], times, m); err != nil {
			return err
		}
	}
	return nil
}

func measureDeadPage(ctx context.Context, c jobClient, query url.Values, name string, times int, m metrics) (page deadPage, err error) {
	var took []time.Duration
	for range times {
		began := time.Now()
		page = deadPage{}
		if err := c.get(ctx, "/dead-letter?"+query.Encode(), &page); err != nil {
			return page, fmt.Errorf("%s: %w", name, err)
		}
		took = append(took, time.Since(began))
	}
	if full := min(lettersPageSize, page.Total); query.Get("offset") == "" && query.Get("cursor") == "" && len(page.Jobs) != full {
		return page, equal("jobs of the page "+name, len(page.Jobs), full)
	}
	m[name+"|p50"], m[name+"|p95"] = milliseconds(percentile(took, .5)), milliseconds(percentile(took, .95))
	m[slowestPage] = max(m[slowestPage], m[name+"|p95"])
	return page, nil
}

// retryUnderKills asks for a bulk retry, and kills the server while it works on it.
func (j job) retryUnderKills(ctx context.Context, s *postadjudication.Service, db *sql.DB, server *serverProcess, m metrics) error {
	begun := time.Now()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		var answer any // none comes: the server is killed first
		_ = server.client.post(ctx, "/dead-letter/retry", fmt.Appendf(nil, `{"filter":{"queue":%q},"confirm":true}`, deadQueue), http.StatusOK, &answer)
	}()
	defer func() { <-answered }()
	if err := untilNone(ctx, db, `SELECT NOT EXISTS (SELECT FROM recourse.bulks WHERE state <> 'planned')`); err != nil {
		return err
	}
	var text string
	if err := db.QueryRowContext(ctx, `SELECT id::text FROM recourse.bulks`).Scan(&text); err != nil {
		return err
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return err
	}
	plan, err := s.As("bench", "").Bulk.Get(ctx, id)
	if err != nil {
		return err
	}
	m[planSeconds] = time.Since(begun).Seconds()
	stop, err := underKills(ctx, s, plan, begun, server, func() (killable, error) { return j.startServer(ctx, retainDead...) }, m)
	stop()
	return err
}

// verifyDead checks that each job of the bulk retry was retried once, and no other.
func (j job) verifyDead(ctx context.Context, db *sql.DB, retried int, m metrics) error {
	var dead, forked, forks, done, twice int
	err := db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE letter = 'open'), count(*) FILTER (WHERE letter = 'forked' AND queue = $1), count(*) FILTER (WHERE parent_id IS NOT NULL AND live AND queue = $1),
		(SELECT count(*) FROM recourse.bulk_items WHERE outcome = 'done'), (`+duplicatesSQL+`) FROM recourse.runs`, deadQueue).Scan(&dead, &forked, &forks, &done, &twice)
	m[duplicates] = float64(twice)
	return errors.Join(err, equal("dead jobs", dead, j.Tasks-retried), equal("retried jobs", forked, retried), equal("new runs of them", forks, retried),
		equal("items that are done", done, retried), equal("duplicates", twice, 0), auditSample(ctx, j, db))
}

// writeDeadPages writes the 95th percentiles of pages, by filter.
func writeDeadPages(out io.Writer, all []result) error {
	for _, r := range all {
		if r.Workload != jobsDeadWorkload {
			continue
		}
		t := table.NewWriter()
		t.SetTitle(fmt.Sprintf("pages of %d dead jobs over HTTP, %d each, p95 ms", r.Tasks, lettersPageSize))
		head := table.Row{"filter"}
		for _, page := range deadPages {
			head = append(head, page)
		}
		t.AppendHeader(head)
		for _, name := range slices.Sorted(maps.Keys(deadFilters(time.Time{}))) {
			row := table.Row{name}
			for _, page := range deadPages {
				row = append(row, fmt.Sprintf("%.1f", r.Metrics[name+"|"+page+"|p95"]))
			}
			t.AppendRow(row)
		}
		if _, err := fmt.Fprintf(out, "%s\n", t.Render()); err != nil {
			return err
		}
	}
	return nil
}
