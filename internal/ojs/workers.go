package ojs

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
)

// fetchJobs answers POST /workers/fetch. A fetch of jobs with a key is refused also after it was made, if too many
// answers are not read yet: it can be repeated, and is given the same jobs. One with an adjudication is answered,
// since it may be given once only.
func (s *Server) fetchJobs(q request) (answer, error) {
	f, err := parsed(q, spec.ParseFetch)
	if err != nil {
		return answer{}, err
	}
	if err := s.checkQueues(q, f.Queues); err != nil {
		return answer{}, err
	}
	key, err := fetchKey(q)
	if err != nil {
		return answer{}, err
	}
	if err := s.door.CheckAnswers(q.caller.Tenant); err != nil {
		return answer{}, err
	}
	fetched, err := q.jobs.Fetch(q.Context(), jobs.Fetch{Queues: f.Queues, Count: f.Count, Worker: f.Worker, Visibility: f.Visibility, Key: key})
	holdsOrder := slices.ContainsFunc(fetched, func(f jobs.Fetched) bool { return isAdjudication(f.Status) })
	if err == nil && key != (lease.FetchKey{}) && !holdsOrder {
		err = s.door.CheckAnswers(q.caller.Tenant)
	}
	if err != nil {
		return answer{}, err
	}
	size := len(`{"jobs":[]}`)
	for i := range fetched {
		size += len(fetched[i].Payload) + maxServerMembers
	}
	body := append(make([]byte, 0, size), `{"jobs":[`...)
	now := q.jobs.Now()
	for i := range fetched {
		if i > 0 {
			body = append(body, ',')
		}
		status := statusOf(fetched[i].Status, now)
		status.RetryDelay, status.Visibility = fetched[i].RetryDelay, fetched[i].Visibility
		body = append(body, spec.Render(fetched[i].Payload, status)...)
	}
	return answer{body: append(body, "]}"...)}, nil
}

// checkQueues refuses a queue from which the caller's key may not fetch. The refusal leaves a receipt.
func (s *Server) checkQueues(q request, queues []string) error {
	for _, queue := range queues {
		if pays := s.service.PaymentQueue(queue); !q.caller.MayFetch(queue, pays) {
			if err := s.door.RecordRefusal(q.Context(), q.caller, postadjudication.AccessRefusal{Action: string(access.Work), Code: queueForbidden}); err != nil {
				return err
			}
			return spec.Own(http.StatusForbidden, queueForbidden, "the access key is not for queue "+queue+": make one with recourse keys create --roles worker --queues "+queue)
		} else if pays {
			if err := s.checkDuties(q, queue); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDuties refuses a caller that also decides about money by another key. Such keys are made only before the
// queue is named as one that pays; so it is enough to look once a minute.
func (s *Server) checkDuties(q request, queue string) error {
	who := strings.Join([]string{q.caller.Tenant, q.caller.Principal, queue}, "\x00")
	if _, known := s.oneDuty.Get(who); known || q.caller.Key == "" {
		return nil
	}
	err := s.service.As(q.caller.Tenant, q.caller.Principal).Keys.CheckDuties(q.Context(), q.caller.Principal, queue)
	if mixed := (*access.DutiesError)(nil); errors.As(err, &mixed) {
		if err := s.door.RecordRefusal(q.Context(), q.caller, postadjudication.AccessRefusal{Action: string(access.Work), Code: dutiesMixed}); err != nil {
			return err
		}
		return spec.Own(http.StatusForbidden, dutiesMixed, mixed.Error()+": revoke one of the two")
	}
	if err == nil {
		s.oneDuty.Add(who, struct{}{})
	}
	return err
}

// dutiesMixed is the code for a principal that pays and decides.
const dutiesMixed = "duties_mixed"

// queueForbidden is the code for a queue that is not among those of the key.
const queueForbidden = "queue_forbidden"

// maxServerMembers is about how many bytes the members of the server add to a fetched job.
const maxServerMembers = 512

// answerOf returns what a worker says of a job. An id that is not valid is answered with not found.
func answerOf(a spec.Answer) (jobs.Answer, error) {
	if !spec.ValidID(a.JobID) {
		return jobs.Answer{}, spec.NotFound(spec.KindJob, a.JobID)
	}
	return jobs.Answer{ID: a.JobID, Worker: a.Worker, Attempt: a.Attempt}, nil
}

// ackJob answers POST /workers/ack.
func ackJob(q request) (answer, error) {
	a, err := parsed(q, spec.ParseAck)
	if err != nil {
		return answer{}, err
	}
	of, err := answerOf(a.Answer)
	if err != nil {
		return answer{}, err
	}
	done, err := q.jobs.Ack(q.Context(), of, a.Result)
	if err != nil {
		return answer{}, changeError(q, err, spec.RequestAck, a.JobID)
	}
	kept := done.Output
	if bytes.Equal(kept, a.Result) && !a.Replaced {
		kept = nil
	}
	return answer{body: marshal(struct {
		Acknowledged bool            `json:"acknowledged"`
		ID           string          `json:"id"`
		JobID        string          `json:"job_id"`
		State        spec.State      `json:"state"`
		CompletedAt  string          `json:"completed_at,omitempty"`
		Result       json.RawMessage `json:"result,omitempty"` // as it is kept, if that is not what was said
	}{true, done.ID, done.ID, stateOf(done, done.EndedAt), spec.FormatTime(done.EndedAt), kept})}, nil
}

// nackJob answers POST /workers/nack.
func nackJob(q request) (answer, error) {
	n, err := parsed(q, spec.ParseNack)
	if err != nil {
		return answer{}, err
	}
	of, err := answerOf(n.Answer)
	if err != nil {
		return answer{}, err
	}
	var after jobs.Status
	why := background.Failure{Type: n.Type, Code: n.Code, Message: n.Message, Stack: strings.Join(n.Backtrace, "\n"), Details: string(n.Details)}
	if n.Requeue {
		after, err = q.jobs.HandBack(q.Context(), of, why)
	} else {
		after, err = q.jobs.Nack(q.Context(), of, why, n.Retryable, orders[n.Order])
	}
	if err != nil {
		return answer{}, changeError(q, err, spec.RequestNack, n.JobID)
	}
	return answer{body: nacked(after, q)}, nil
}

var orders = map[spec.Order]background.EndOrder{
	spec.ByPolicy: background.EndByPolicy, spec.OrderDiscard: background.EndDiscarded, spec.OrderDeadLetter: background.EndDeadLettered,
}

// nacked returns the answer to a nack.
func nacked(after jobs.Status, q request) []byte {
	now := q.jobs.Now()
	out := struct {
		ID            string     `json:"id"`
		JobID         string     `json:"job_id"`
		State         spec.State `json:"state"`
		Attempt       int        `json:"attempt"`
		MaxAttempts   int        `json:"max_attempts"`
		RetryDelay    int64      `json:"retry_delay_ms,omitempty"`
		NextAttemptAt string     `json:"next_attempt_at,omitempty"`
		NextRetryAt   string     `json:"next_retry_at,omitempty"`
		DiscardedAt   string     `json:"discarded_at,omitempty"`
		CompletedAt   string     `json:"completed_at,omitempty"`
	}{ID: after.ID, JobID: after.ID, State: stateOf(after, now), Attempt: after.Attempt, MaxAttempts: after.Policy.MaxRetryAttempts}
	switch {
	case after.State == background.Scheduled && after.RetryDelay > 0:
		out.State = spec.Retryable
		out.RetryDelay, out.NextAttemptAt = after.RetryDelay.Milliseconds(), spec.FormatTime(after.DueAt)
		out.NextRetryAt = out.NextAttemptAt
	case out.State == spec.Discarded:
		out.DiscardedAt = spec.FormatTime(after.EndedAt)
		out.CompletedAt = out.DiscardedAt
	}
	return marshal(out)
}

// heartbeat answers POST /workers/heartbeat.
func (s *Server) heartbeat(q request) (answer, error) {
	h, err := parsed(q, spec.ParseHeartbeat)
	if err != nil {
		return answer{}, err
	}
	extended, err := q.jobs.Heartbeat(q.Context(), h.Worker, h.Jobs, h.Visibility)
	if err != nil {
		return answer{}, err
	}
	state, directive := s.directive(q, h.Jobs), ""
	if state != spec.WorkerRunning {
		directive = state
	}
	return answer{body: marshal(struct {
		State     string   `json:"state"`
		Directive string   `json:"directive"`
		Extended  []string `json:"jobs_extended"`
		At        string   `json:"server_time"`
	}{state, directive, append([]string{}, extended...), spec.FormatTime(q.jobs.Now())})}, nil
}

// fetchKey returns the key of a fetch that can be repeated: of the caller, its Idempotency-Key and the body.
func fetchKey(q request) (key lease.FetchKey, err error) {
	given := q.Header.Values("Idempotency-Key")
	switch {
	case len(given) == 0:
		return key, nil
	case len(given) > 1 || given[0] == "" || len(given[0]) > 255:
		return key, spec.Invalid("Idempotency-Key", "must be given once, of 1 to 255 bytes")
	}
	h := sha256.New()
	for _, part := range []string{"recourse fetch 1", q.caller.Principal, given[0], string(q.body)} {
		digest := sha256.Sum256([]byte(part))
		h.Write(digest[:])
	}
	return lease.FetchKey(h.Sum(nil)), nil
}
