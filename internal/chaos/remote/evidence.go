package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Evidence is what Verify judges: what the workers and callers recorded, and what /ojs shows when all is
// over.
type Evidence struct {
	Entries []Entry
	Jobs    []Enqueued
	Acts    []Act
	Broken  []string // answers that were wrong by themselves
	Finals  map[string]Final
	Events  []Event
	Clock   Clock // of the database
}

// Final is a job as it is at the end.
type Final struct {
	Found              bool
	State              string
	Letter             bool // an open dead letter
	Attempt, Limit     int  // of the newest run
	Key                string
	CreatedAt, EndedAt time.Time
}

// Event is an event of a job.
type Event struct {
	Type   string
	Job    string
	Worker string // of a start
}

// The types of events that are judged.
const (
	eventEnqueued  = "job.enqueued"
	eventStarted   = "job.started"
	eventCompleted = "job.completed"
	eventRetried   = "dead_letter.retried"
	eventReplayed  = "dead_letter.replayed"
)

// Collect reads the evidence. No job may change any more, and the server must answer.
func (l *Load) Collect(ctx context.Context, ledger *Ledger) (Evidence, error) {
	e := Evidence{Entries: ledger.Entries(), Finals: map[string]Final{}}
	e.Jobs, e.Acts, e.Broken = l.read()
	for _, j := range e.Jobs {
		f, err := l.final(ctx, j.ID)
		if err != nil {
			return e, err
		}
		e.Finals[j.ID] = f
	}
	return e, l.events(ctx, &e)
}

func (l *Load) final(ctx context.Context, id string) (f Final, err error) {
	r, err := l.must(ctx, jobsPath+"/"+id)
	if err != nil || r.status == http.StatusNotFound {
		return f, err
	}
	var found struct {
		Job job `json:"job"`
	}
	if err := json.Unmarshal(r.body, &found); err != nil {
		return f, fmt.Errorf("remote: job %s is %s: %w", id, r, err)
	}
	j := found.Job
	f = Final{Found: true, State: j.State, Attempt: j.Attempt, Limit: j.MaxAttempt, Key: j.Result.Key, CreatedAt: j.CreatedAt, EndedAt: j.endedAt()}
	if f.State == discarded {
		r, err = l.must(ctx, lettersPath+"/"+id)
		f.Letter = r.ok()
	}
	return f, err
}

// must reads a page, which is there or not.
func (l *Load) must(ctx context.Context, path string) (reply, error) {
	for ctx.Err() == nil {
		r := l.door.send(ctx, http.MethodGet, path, nil)
		switch {
		case r.ok(), r.status == http.StatusNotFound:
			return r, nil
		case !r.unknown() && r.status != http.StatusTooManyRequests:
			return r, fmt.Errorf("remote: GET %s was answered %s", path, r)
		}
		wait(ctx, pause)
	}
	return reply{}, ctx.Err()
}

func (l *Load) events(ctx context.Context, e *Evidence) error {
	types := strings.Join([]string{eventEnqueued, eventStarted, eventCompleted, eventRetried, eventReplayed}, ",")
	for after, more := "", true; more; {
		path := eventsPath + "?limit=1000&types=" + types
		if after != "" {
			path += "&after=" + url.QueryEscape(after)
		}
		r, err := l.must(ctx, path)
		if err != nil {
			return err
		}
		var page struct {
			Events []struct {
				Type    string `json:"type"`
				Subject string `json:"subject"`
				Data    struct {
					Worker string `json:"worker_id"`
				} `json:"data"`
			} `json:"events"`
			Cursor string `json:"cursor"`
			More   bool   `json:"has_more"`
		}
		if err := json.Unmarshal(r.body, &page); err != nil {
			return fmt.Errorf("remote: events %s: %w", r, err)
		}
		for _, one := range page.Events {
			e.Events = append(e.Events, Event{one.Type, one.Subject, one.Data.Worker})
		}
		after, more = page.Cursor, page.More
	}
	return nil
}
