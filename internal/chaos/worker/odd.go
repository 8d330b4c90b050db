package worker

import (
	"context"
	"encoding/json"

	"github.com/recourse-dev/recourse/postadjudication"
)

// How an executor misbehaves beyond what its escrow service does; a request says it
// in payload.executor.
const (
	Stubborn = "stubborn" // its calls go on when their context has ended
	Lies     = "lies"     // it says that twice as much was moved
)

// odd is an executor that does what the request says.
type odd struct {
	postadjudication.Executor
	postadjudication.Lookuper
}

func (o odd) Execute(ctx context.Context, c postadjudication.Call) postadjudication.Answer {
	var request struct {
		Payload struct {
			Executor string `json:"executor"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(c.Request, &request); err != nil {
		return postadjudication.Answer{Class: postadjudication.NotExecuted, Type: "request.unreadable", Message: err.Error()}
	}
	if request.Payload.Executor == Stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	a := o.Executor.Execute(ctx, c)
	if request.Payload.Executor == Lies {
		a.Moved *= 2
	}
	return a
}
