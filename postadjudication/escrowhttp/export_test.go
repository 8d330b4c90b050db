package escrowhttp

import (
	"context"
	"net/http"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// What black-box tests need of this package that its users do not.

const (
	DefaultMaxBody = defaultMaxBody
	MaxRetryAfter  = maxRetryAfter
)

var (
	ErrCallEnded = errCallEnded
	RefusalOf    = refusalOf
	NewGatedBody = newGatedBody
	RetryAfter   = retryAfter
)

// End ends the body as the end of its call does.
func (b *gatedBody) End() error { return b.end() }

// AnswerTo returns what a response says of a call, of which at most maxBody bytes are read.
func AnswerTo(ctx context.Context, c escrow.Call, maxBody int64, r *http.Response) escrow.Answer {
	x := exchange{call: c, maxBody: maxBody}
	return x.execution(ctx, r)
}
