package escrowhttp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/settlement"
)

const (
	statusExecuted        = "executed"
	statusAlreadyExecuted = "already_executed"
	statusNotExecuted     = "not_executed"
	statusAccepted        = "accepted"
	statusPending         = "pending"
	statusProcessing      = "processing"

	// errorTextTimeout limits the wait for the text of an error after its status has decided.
	errorTextTimeout = 100 * time.Millisecond
)

// answerBody is the body of an answer.
type answerBody struct {
	OperationKey string    `json:"operation_key"`
	Status       string    `json:"status"`
	Moved        *moved    `json:"moved"`
	Reference    reference `json:"reference"`
}

type moved struct {
	Minor    wholeNumber `json:"minor"`
	Currency string      `json:"currency"`
}

// execution reads a success. An unreadable body does not prove an execution.
func (x *exchange) execution(ctx context.Context, resp *http.Response) escrow.Answer {
	b, err := x.readBody(resp)
	if err == nil && x.asynchronous && isAccepted(b) {
		return acceptedAnswer(resp, x.now())
	}
	if err == nil {
		err = x.checkMoved(b)
	}
	if err != nil {
		return x.unreadableAnswer(ctx, resp, err)
	}
	return escrow.Answer{Class: escrow.Executed, Moved: int64(b.Moved.Minor), Code: statusCode(resp), Reference: string(b.Reference)}
}

// acceptance reads a 202. It may have no body. One that states something else than that the call is accepted proves
// nothing.
func (x *exchange) acceptance(ctx context.Context, resp *http.Response) escrow.Answer {
	body := bufio.NewReader(resp.Body)
	if _, err := body.Peek(1); errors.Is(err, io.EOF) {
		return acceptedAnswer(resp, x.now())
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, resp.Body}
	b, err := x.readBody(resp)
	if err == nil && !isAccepted(b) {
		err = fmt.Errorf("status is %q", b.Status)
	}
	if err != nil {
		return x.unreadableAnswer(ctx, resp, err)
	}
	return acceptedAnswer(resp, x.now())
}

// isAccepted reports whether a body says that the service has the call and has not ended it.
func isAccepted(b answerBody) bool {
	return (b.Status == statusAccepted || b.Status == statusPending || b.Status == statusProcessing) && (b.Moved == nil || b.Moved.Minor == 0)
}

func acceptedAnswer(resp *http.Response, now time.Time) escrow.Answer {
	return escrow.Answer{
		Class: escrow.Unknown, Retry: true, Accepted: true, RetryAfter: retryAfter(resp.Header, now),
		Type: TypeAccepted, Code: statusCode(resp), Message: "the escrow service accepted the call and has not ended it",
	}
}

func (x *exchange) checkMoved(b answerBody) error {
	asked := x.call.Amount
	switch {
	case b.Status != statusExecuted && b.Status != statusAlreadyExecuted:
		return fmt.Errorf("status is %q", b.Status)
	case b.Moved == nil:
		return errors.New("moved is missing")
	case b.Moved.Currency != asked.Currency:
		return fmt.Errorf("moved is in %q, not in %s", b.Moved.Currency, asked.Currency)
	case b.Moved.Minor < 1 || b.Moved.Minor > settlement.MaxMinor:
		return fmt.Errorf("moved is %d", b.Moved.Minor)
	case b.Status == statusAlreadyExecuted && int64(b.Moved.Minor) > asked.Minor:
		return fmt.Errorf("already executed with %d, but %d was asked for", b.Moved.Minor, asked.Minor)
	}
	return nil
}

// provenAbsence reads a lookup's 404. A 404 that does not name the operation key comes from a
// wrong path or another service and proves nothing.
func (x *exchange) provenAbsence(ctx context.Context, resp *http.Response) escrow.Answer {
	b, err := x.readBody(resp)
	if err == nil && b.Status != statusNotExecuted {
		err = fmt.Errorf("status is %q", b.Status)
	}
	if err == nil && b.Moved != nil && b.Moved.Minor != 0 {
		err = fmt.Errorf("not executed, but moved is %d", b.Moved.Minor)
	}
	if err != nil {
		return x.unreadableAnswer(ctx, resp, err)
	}
	return escrow.Answer{
		Class: escrow.NotExecuted, Retry: true, Type: TypeNotExecuted, Code: statusCode(resp),
	}
}

// readBody reads one JSON object that names the operation key. An object that parsers may read
// differently, such as one with a duplicate member, is unreadable.
func (x *exchange) readBody(resp *http.Response) (answerBody, error) {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") {
		return answerBody{}, fmt.Errorf("content type is %q", resp.Header.Get("Content-Type"))
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, x.maxBody+1))
	if err != nil {
		return answerBody{}, fmt.Errorf("body: %w", err)
	}
	if int64(len(raw)) > x.maxBody {
		return answerBody{}, fmt.Errorf("body is longer than %d bytes", x.maxBody)
	}
	var b answerBody
	if err := strictjson.Decode(bytes.TrimPrefix(raw, byteOrderMark), &b); err != nil {
		return answerBody{}, fmt.Errorf("body: %w", err)
	}
	if b.OperationKey != x.call.OperationKey.String() {
		return answerBody{}, errors.New("body names another operation key")
	}
	return b, nil
}

func (x *exchange) unreadableAnswer(ctx context.Context, resp *http.Response, err error) escrow.Answer {
	a := escrow.Answer{
		Class: escrow.Unknown, Retry: true, Type: TypeUnreadable,
		Code: statusCode(resp), Message: oneLine(err.Error()),
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		a.Type = TypeTimeout
	}
	return a
}

// decidedByStatus returns the answer of a status that decides. Its body only adds text, for
// which it waits at most errorTextTimeout. But a refusal whose body names the idempotency key proves nothing: the
// key may have been used with another request, and paid. Nor does one that states a payment under our key. If its body
// can't be read, it may be such a refusal where the status is one of those that services give for it.
func (x *exchange) decidedByStatus(resp *http.Response, v Verdict) escrow.Answer {
	a := escrow.Answer{Class: v.Class, Retry: v.Retry, Type: v.Type, Code: statusCode(resp)}
	if v.Retry {
		a.RetryAfter = retryAfter(resp.Header, x.now())
	}
	timeout := time.AfterFunc(errorTextTimeout, x.cancel)
	defer timeout.Stop()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, x.maxBody+1))
	cut := err != nil || int64(len(raw)) > x.maxBody
	if cut {
		raw = []byte(redact.TrimPartial(string(raw)))
	}
	code, text := refusalOf(raw)
	a.Message = text
	if code != "" && !cut {
		a.Code = code
	}
	if a.Message == "" && err != nil {
		a.Message = oneLine("body: " + err.Error())
	}
	unreadable := cut || !utf8.Valid(raw) || resp.Header.Get("Content-Encoding") != ""
	switch about := plainTexts(raw); {
	case v.Class != escrow.NotExecuted:
	case strings.Contains(about, "idempoten"):
		a.Class, a.Type = escrow.Unknown, TypeKeyReused
	case x.statesPayment(raw):
		a.Class, a.Type = escrow.Unknown, TypeUnreadable
	case !v.Retry && unreadable && mayBeAboutKey(resp.StatusCode):
		a.Class = escrow.Unknown
	}
	return a
}

// statesPayment reports whether a body names our operation key as one that has paid, as an execution does.
func (x *exchange) statesPayment(body []byte) bool {
	var b answerBody
	err := json.Unmarshal(bytes.TrimPrefix(body, byteOrderMark), &b)
	paid := b.Status == statusExecuted || b.Status == statusAlreadyExecuted || b.Moved != nil && b.Moved.Minor > 0
	return err == nil && b.OperationKey == x.call.OperationKey.String() && paid
}

// plainTexts returns a body in lower case, and where it is JSON, with each text as its readers get it: JSON may escape
// any letter.
func plainTexts(body []byte) string {
	var value any
	if json.Unmarshal(bytes.TrimPrefix(body, byteOrderMark), &value) == nil {
		if plain, err := json.Marshal(value); err == nil {
			body = plain
		}
	}
	return strings.ToLower(string(body))
}

// mayBeAboutKey reports whether services refuse with a status a key that was used with another request.
func mayBeAboutKey(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusConflict || status == http.StatusUnprocessableEntity
}

// maxRetryAfter is the maximum of Retry-After.
const maxRetryAfter = 24 * time.Hour

// retryAfter returns the wait that the answer asks for: whole seconds, or until a date,
// measured by the answer's Date if it has one. 0 if it has no valid Retry-After.
func retryAfter(h http.Header, now time.Time) time.Duration {
	s := strings.TrimSpace(h.Get("Retry-After"))
	if s == "" {
		return 0
	}
	if strings.Trim(s, "0123456789") == "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter // digits only, so the only possible error is overflow
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
