package rig

import (
	"context"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// OneQueue gives a process one queue.
func OneQueue(c *postadjudication.Config) { c.Shards, c.Sweep = 1, 50*time.Millisecond }

// OnlyQueue is the queue of settlements with OneQueue.
const OnlyQueue = postadjudication.Family + ":0"

// SucceedTask is the function of a plain family whose tasks succeed.
func SucceedTask(context.Context, background.Attempt) background.Result {
	return background.Result{Class: escrow.Executed}
}
