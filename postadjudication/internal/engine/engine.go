package engine

import (
	"context"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/circuit"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
)

// Engine is what a Service uses of a background.Manager, which documents the methods.
type Engine interface {
	casework.Engine
	Run(ctx context.Context) error
	Close() error
	CheckRedis(ctx context.Context, setMarker bool) error
	Ping(ctx context.Context) error
	Healthy() error
	Stats() background.Stats
	PausedQueues() []string
	Breakers() (open []circuit.Breaker, stalled []background.StalledBreaker)
	UpdateBreaker(ctx context.Context, t circuit.Scope, decide func(circuit.Breaker) (circuit.Breaker, bool)) (now circuit.Breaker, changed bool, err error)
}

// Open returns the manager of a configuration, and what gives its remote runs to workers. It connects to
// nothing, see background.New.
func Open(cfg background.Config) (Engine, casework.Fetcher, error) {
	m, err := background.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	return m, m.Fetcher(), nil
}
