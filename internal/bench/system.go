package main

import (
	"context"
)

// The systems.
const (
	recourse = "recourse"
	byHand   = "asynq"
	river    = "river"
)

var systemNames = []string{recourse, byHand, river}

// system is one way to carry settlements to their end, opened on a database with its
// schema. Its attempts, their answers and the ends go into the record that it was
// opened with.
type system interface {
	// submit hands task i over. It is durable when submit returns.
	submit(ctx context.Context, i int) error
	// work executes what is due until ctx ends, then stops gracefully.
	work(ctx context.Context) error
	close() error
}

// systemKind makes systems of one kind.
type systemKind struct {
	// prepare makes the schema in an empty database, as its owner, and lets localpg.AppRole
	// work on it.
	prepare func(ctx context.Context, ownerURL string) error
	open    func(ctx context.Context, j job, r *record) (system, error)
	// verify checks that a database holds exactly what a workload leaves behind.
	verify func(ctx context.Context, j job) error
}

var systemKinds = map[string]systemKind{
	recourse: {prepareRecourse, openRecourse, verifyRecourse},
	byHand:   {prepareByHand, openByHand, verifyByHand},
	river:    {prepareRiver, openRiver, verifyRiver},
}
