package ojs

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/recourse-dev/recourse/internal/door"
	"github.com/recourse-dev/recourse/internal/ojs/spec"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
	"github.com/recourse-dev/recourse/postadjudication/jobs"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
)

// filterOf returns a filter of dead letters.
func filterOf(f spec.Filter) jobs.Filter {
	return jobs.Filter{Queue: f.Queue, Type: f.Type, ErrorType: f.ErrorType, Since: f.Since, Until: f.Until}
}

// listLetters answers GET /dead-letter.
func listLetters(q request) (answer, error) {
	f, page, err := spec.ParseList(q.URL.Query())
	if err != nil {
		return answer{}, err
	}
	asked := jobs.Query{Filter: filterOf(f), After: page.After, Offset: page.Offset, Limit: page.Limit}
	if f.Args != "" {
		return searchLetters(q, asked, f.Args)
	}
	found, err := q.jobs.DeadLetters().List(q.Context(), asked)
	if err != nil {
		return answer{}, cursorError(err)
	}
	return answer{body: withJobs("jobs", rendered(q, found), struct {
		Total      int64      `json:"total"`
		Pagination pagination `json:"pagination"`
	}{found.Total, pagination{found.Total, found.Next != "", page.Limit, page.Offset, found.Next}})}, nil
}

// searchLetters answers GET /dead-letter for a part of the args. How many there are in all is not known.
func searchLetters(q request, asked jobs.Query, part string) (answer, error) {
	found, err := q.jobs.DeadLetters().Search(q.Context(), asked, func(envelope json.RawMessage) bool { return argsHave(envelope, part) })
	if err != nil {
		return answer{}, cursorError(err)
	}
	type searched struct {
		HasMore    bool   `json:"has_more"`
		Limit      int    `json:"limit"`
		NextCursor string `json:"next_cursor,omitempty"`
	}
	return answer{body: withJobs("jobs", rendered(q, found), struct {
		Pagination searched `json:"pagination"`
	}{searched{found.Next != "", asked.Limit, found.Next}})}, nil
}

// argsHave reports whether the args in an envelope have a part: as they were written, or with every character written as
// itself; without blanks between members either way.
func argsHave(envelope json.RawMessage, part string) bool {
	var of struct {
		Args json.RawMessage `json:"args"`
	}
	var written bytes.Buffer
	if json.Unmarshal(envelope, &of) != nil || json.Compact(&written, of.Args) != nil {
		return false
	}
	switch text := written.String(); {
	case strings.Contains(text, part):
		return true
	case !strings.Contains(text, `\`):
		return false
	}
	var value any
	decoder := json.NewDecoder(&written)
	decoder.UseNumber()
	return decoder.Decode(&value) == nil && strings.Contains(string(marshal(value)), part)
}

// cursorError returns the refusal of a cursor under the name of its parameter.
func cursorError(err error) error {
	var field *refusal.FieldError
	if errors.As(err, &field) && field.Field == "after" {
		return spec.Invalid("cursor", "must be a next_cursor of this list")
	}
	return err
}

// listLettersByAdmin answers GET /admin/dead-letter.
func listLettersByAdmin(q request) (answer, error) {
	f, page, err := spec.ParseAdminList(q.URL.Query())
	if err != nil {
		return answer{}, err
	}
	found, err := q.jobs.DeadLetters().List(q.Context(), jobs.Query{Filter: filterOf(f), Offset: page.Offset, Limit: page.Limit})
	if err != nil {
		return answer{}, err
	}
	type numbered struct {
		Total   int64 `json:"total"`
		Page    int   `json:"page"`
		PerPage int   `json:"per_page"`
	}
	return answer{body: withJobs("items", rendered(q, found), struct {
		Pagination numbered `json:"pagination"`
	}{numbered{found.Total, page.Number, page.Limit}})}, nil
}

// rendered returns the jobs of a page as a JSON list.
func rendered(q request, page jobs.Page) json.RawMessage {
	now := q.jobs.Now()
	out := []byte{'['}
	for i, j := range page.Jobs {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, spec.Render(j.Payload, statusOf(j, now))...)
	}
	return append(out, ']')
}

// findLetter returns a job that is an open dead letter.
func findLetter(q request) (jobs.Status, error) {
	found, err := find(q.Context(), q.jobs, q.PathValue("id"), spec.KindDeadLetter)
	if err == nil && !isLetter(found) {
		err = spec.NotDeadLetter(found.ID, stateOf(found, q.jobs.Now()))
	}
	return found, err
}

// getLetter answers GET /dead-letter/{id}.
func getLetter(q request) (answer, error) {
	found, err := findLetter(q)
	if err != nil {
		return answer{}, err
	}
	return answer{body: renderJob(found, q.jobs.Now()), caseID: found.Case}, nil
}

// retryLetter answers POST /dead-letter/{id}/retry.
func (s *Server) retryLetter(q request) (answer, error) {
	override, err := parsed(q, spec.ParseRetry)
	if err != nil {
		return answer{}, err
	}
	// The letter is read first: one that this request made dead again is found then, whatever another handler
	// of the same request does meanwhile.
	dead, err := findLetter(q)
	if done, retried, doneErr := retriedBefore(q); doneErr != nil || retried {
		return done, doneErr
	}
	if err != nil {
		return answer{}, err
	}
	how := jobs.Retry{Reason: reason("dead letter retried"), Of: dead.Run, Request: door.RequestID(q.Context())}
	if isAdjudication(dead) && len(override) > 0 {
		return answer{}, spec.Unsupported("changes", "must be absent: the order to the payment service can't be changed")
	}
	if len(override) > 0 {
		var job spec.Overridden
		if waited := tenantlimit.InTurn(q.Context(), q.caller.Tenant, len(dead.Payload)+len(override), func() { job, err = spec.Override(dead.Payload, override, termsOf(dead)) }); waited != nil {
			return answer{}, waited
		}
		if err != nil {
			return answer{}, err
		}
		how.Reason, how.Payload = reason("dead letter retried with changes: "+job.Changes), job.Stored
		if job.GivesQueue {
			how.Queue = job.Queue
		}
		if job.GivesRetry {
			how.Policy = &job.Policy
		}
		if job.Unique != nil {
			how.Fingerprint = &job.Unique.Fingerprint
		}
	}
	after, err := q.jobs.DeadLetters().Retry(q.Context(), dead.ID, how)
	if err != nil {
		return answer{}, letterError(q, dead, err)
	}
	return answer{body: renderJob(after, q.jobs.Now()), caseID: after.Case}, nil
}

// retriedBefore returns the job as the answer if this request retried it before: an earlier handler of it was
// interrupted, or is slow.
func retriedBefore(q request) (answer, bool, error) {
	asked := door.RequestID(q.Context())
	if asked == "" {
		return answer{}, false, nil
	}
	found, err := find(q.Context(), q.jobs, q.PathValue("id"), spec.KindDeadLetter)
	if err != nil {
		return answer{}, false, err
	}
	made, err := q.jobs.MadeBy(q.Context(), found, asked)
	return answer{body: renderJob(found, q.jobs.Now()), caseID: found.Case}, made, err
}

// letterError returns the refusal of a change of a dead letter.
func letterError(q request, dead jobs.Status, err error) error {
	var conflict *jobs.ConflictError
	var gate *refusal.RefusedError
	switch {
	case errors.As(err, &conflict):
		return spec.NotDeadLetter(dead.ID, stateOf(conflict.Status, q.jobs.Now()))
	case errors.As(err, &gate):
		refused := spec.Conflict(gate.Gate.Meaning()).With("rule", string(gate.Gate)).With("job_id", dead.ID)
		if gate.Gate != refusal.GateUniqueJobLive {
			return refused
		}
		holder, err := q.jobs.DeadLetters().UniqueHolder(q.Context(), dead)
		if err != nil {
			return err
		}
		if holder != "" {
			refused = refused.With("existing_job_id", holder)
		}
		return refused
	}
	return adjudicationError(notFound(err, spec.KindDeadLetter, dead.ID))
}

func deleteLetter(q request) (id string, err error) {
	dead, err := findLetter(q)
	if err != nil {
		return "", err
	}
	if err := q.jobs.DeadLetters().Delete(q.Context(), dead.ID, reason("dead letter deleted")); err != nil {
		return "", letterError(q, dead, err)
	}
	return dead.ID, nil
}

// removeLetter answers DELETE /dead-letter/{id}.
func removeLetter(q request) (answer, error) {
	id, err := deleteLetter(q)
	if err != nil {
		return answer{}, err
	}
	return answer{body: marshal(struct {
		Deleted bool   `json:"deleted"`
		JobID   string `json:"job_id"`
	}{true, id})}, nil
}

// removeLetterByAdmin answers DELETE /admin/dead-letter/{id}.
func removeLetterByAdmin(q request) (answer, error) {
	_, err := deleteLetter(q)
	return answer{status: http.StatusNoContent}, err
}

// letterStats answers GET /dead-letter/stats.
func letterStats(q request) (answer, error) {
	if err := spec.ParseNone(q.URL.Query()); err != nil {
		return answer{}, err
	}
	found, err := q.jobs.DeadLetters().Stats(q.Context())
	if err != nil {
		return answer{}, err
	}
	type retention struct {
		MaxAge      string `json:"max_age,omitempty"`
		MaxCount    int    `json:"max_count,omitempty"`
		NextPruneAt string `json:"next_prune_at,omitempty"`
	}
	out := struct {
		Total       int64            `json:"total"`
		ByQueue     map[string]int64 `json:"by_queue"`
		ByType      map[string]int64 `json:"by_type"`
		ByErrorType map[string]int64 `json:"by_error_type"`
		OldestAt    string           `json:"oldest_at,omitempty"`
		NewestAt    string           `json:"newest_at,omitempty"`
		Retention   retention        `json:"retention"`
	}{Total: found.Total, ByQueue: found.ByQueue, ByType: found.ByType, ByErrorType: found.ByErrorType, Retention: retention{MaxCount: found.MaxCount}}
	if found.MaxAge > 0 {
		out.Retention.MaxAge = spec.FormatDuration(found.MaxAge)
	}
	if !found.OldestAt.IsZero() {
		out.OldestAt, out.NewestAt = spec.FormatTime(found.OldestAt), spec.FormatTime(found.NewestAt)
	}
	if !found.NextPruneAt.IsZero() {
		out.Retention.NextPruneAt = spec.FormatTime(found.NextPruneAt)
	}
	return answer{body: marshal(out)}, nil
}
