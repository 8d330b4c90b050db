package ojs

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

const (
	eventSource = "ojs://recourse/jobs"
	completed   = "job.completed"
)

// listEvents answers GET /events. An event follows from a receipt, and some receipts have several: the id of an
// event has the position of its receipt and its place among those of it.
func listEvents(q request) (answer, error) {
	asked, err := spec.ParseEvents(q.URL.Query())
	if err != nil {
		return answer{}, err
	}
	after := max(0, asked.After)
	if after > 0 && asked.Place < spec.LastPlace { // its receipt may have more
		after--
	}
	page := spec.EventPage{Events: []spec.Event{}, HasMore: true, Cursor: q.URL.Query().Get("after")}
	succeeded := map[string]background.RunID{} // by their jobs, each of which succeeds once
	for reads := 0; page.HasMore && reads < eventReads; reads++ {
		found, upTo, more, err := q.jobs.Events(q.Context(), after, min(jobs.MaxEvents, max(eventsAtOnce, 2*asked.Limit)))
		var field *refusal.FieldError
		switch {
		case errors.As(err, &field):
			return answer{}, spec.Invalid("after", "must be the id of an event")
		case err != nil:
			return answer{}, err
		}
		for _, e := range found {
			if e.Subtype == receipts.AttemptSucceeded {
				succeeded[e.ID] = e.Run
			}
		}
		if full := addEvents(&page, asked, found); full {
			page.Cursor = page.Events[len(page.Events)-1].ID
			break
		}
		if page.HasMore = more; upTo.Position > asked.After {
			page.Cursor = spec.EventID(upTo.At, upTo.Position, spec.LastPlace)
		}
		after = upTo.Position
	}
	if err := addResults(q, &page, succeeded); err != nil {
		return answer{}, err
	}
	return answer{body: marshal(page)}, nil
}

// eventsAtOnce is how many events are read at least.
const eventsAtOnce = 100

// maxResultBytes bounds the results of a page of events. A page with more of them ends early.
const maxResultBytes = 8 << 20

// addResults adds their results to the events of completed jobs, all by one query.
func addResults(q request, page *spec.EventPage, succeeded map[string]background.RunID) error {
	var places []int
	var runs []background.RunID
	for i, e := range page.Events {
		if e.Type == completed {
			places, runs = append(places, i), append(runs, succeeded[e.Subject])
		}
	}
	outputs, read, err := q.jobs.Outputs(q.Context(), runs, maxResultBytes)
	if err != nil {
		return err
	}
	for i, run := range runs[:read] {
		if output := outputs[run]; len(output) > 0 && string(output) != "null" {
			page.Events[places[i]].Data["result"] = json.RawMessage(output)
		}
	}
	if read < len(runs) {
		page.Events = page.Events[:places[read]]
		page.HasMore, page.Cursor = true, page.Events[len(page.Events)-1].ID
	}
	return nil
}

// eventReads bounds how often a request reads on because its filters leave out what it read.
const eventReads = 16

// addEvents adds events that are asked for to a page. It returns true if there is one too many.
func addEvents(page *spec.EventPage, asked spec.EventQuery, found []jobs.Event) bool {
	for _, e := range found {
		for place, one := range eventsOf(e) {
			switch {
			case e.Position < asked.After, e.Position == asked.After && place <= asked.Place, !asked.Wants(one):
				continue
			case len(page.Events) == asked.Limit:
				return true
			}
			one.ID = spec.EventID(e.At, e.Position, place)
			page.Events = append(page.Events, one)
		}
	}
	return false
}

// eventsOf returns the events that follow from a receipt, without their ids.
func eventsOf(e jobs.Event) (out []spec.Event) {
	add := func(kind string, state spec.State, data map[string]any) {
		one := map[string]any{"timestamp": spec.FormatTime(e.At)}
		if e.ID != "" { // else it is of many jobs
			one["job_id"], one["type"], one["job_type"], one["queue"] = e.ID, e.Type, e.Type, e.Queue
		}
		if state != "" {
			one["state"] = string(state)
		}
		for name, value := range data {
			one[name] = value
		}
		out = append(out, spec.Event{SpecVersion: spec.Version, Type: kind, Source: eventSource, Time: spec.FormatTime(e.At), Subject: e.ID, Data: one})
	}
	failed := func(state spec.State) {
		if e.Payload.AttemptClass != "" {
			add("job.failed", state, map[string]any{"attempt": e.Attempt, "error": errorData(e)})
		}
	}
	switch e.Subtype {
	case receipts.Submitted:
		submitted(e, add)
	case receipts.AttemptStarted:
		add("job.started", spec.Active, map[string]any{"attempt": e.Attempt, "worker_id": e.Payload.Worker})
	case receipts.AttemptSucceeded:
		add(completed, spec.Completed, map[string]any{"attempt": e.Attempt, "duration_ms": e.Payload.DurationUS / 1000})
	case receipts.AttemptInterrupted:
		if !e.Payload.HandedBack {
			failed(spec.Available)
		}
	case receipts.RetryScheduled:
		failed(spec.Retryable)
		add("job.retrying", spec.Retryable, map[string]any{
			"attempt": e.Attempt, "max_attempts": e.MaxAttempts, "next_retry_at": spec.FormatTime(e.Payload.NextRetryAt), "error": errorData(e),
		})
	case receipts.Discarded, receipts.DeadLettered:
		if e.Payload.ReasonCode == background.ReasonExpired {
			add("job.expired", spec.Discarded, nil)
		}
		failed(spec.Discarded)
		data := map[string]any{"total_attempts": e.Attempt}
		if last := errorData(e); last != nil { // none of a job that expired before its first attempt
			data["last_error"] = last
		}
		add("job.discarded", spec.Discarded, data)
		if e.Subtype == receipts.DeadLettered {
			add("dead_letter.added", spec.Discarded, map[string]any{"attempt": e.Attempt, "discarded_at": spec.FormatTime(e.At), "actor": e.Actor})
		}
	case receipts.Cancelled:
		add("job.cancelled", spec.Cancelled, map[string]any{"cancelled_by": e.Actor, "reason": e.Payload.Reason})
	case receipts.Purged:
		if !strings.HasPrefix(e.Actor, "system:") {
			add("dead_letter.deleted", "", map[string]any{"actor": e.Actor})
		}
	case receipts.LettersPruned:
		add("dead_letter.pruned", "", map[string]any{"count": e.Payload.Letters, "actor": e.Actor})
	}
	return out
}

// submitted adds the events of a new job, or of a dead letter that starts again.
func submitted(e jobs.Event, add func(string, spec.State, map[string]any)) {
	state := spec.Available
	switch {
	case e.Payload.Pending:
		state = spec.Pending
	case !e.Payload.NextRetryAt.IsZero():
		state = spec.Scheduled
	}
	if !e.Payload.ParentRun.IsZero() {
		kind := "dead_letter.retried"
		if e.ByRule {
			kind = "dead_letter.replayed"
		}
		add(kind, state, map[string]any{"attempt": 0, "actor": e.Actor})
		return
	}
	add("job.enqueued", state, map[string]any{"priority": e.Payload.Priority})
}

// errorData returns the failure that a receipt states; nil if it states none.
func errorData(e jobs.Event) map[string]any {
	f := e.Payload.Error
	if f == (receipts.Failure{}) {
		return nil
	}
	return map[string]any{"code": cmp.Or(f.Code, f.Type), "type": cmp.Or(f.Type, f.Code), "message": cmp.Or(f.Message, f.Code, f.Type)}
}
