package asynqredis

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// maxBatch bounds the scripts of one round trip.
	maxBatch = 256
	// maxInFlight bounds concurrent round trips: the second sends what arrives during the first.
	maxInFlight = 2
)

// Pipelined is a Redis client whose EvalSha sends the scripts of concurrent callers in one
// pipeline. A single caller does not wait for others. asynq does nearly everything by EvalSha.
type Pipelined struct {
	redis.UniversalClient

	mu       sync.Mutex
	queue    []*script
	inFlight int
	senders  sync.WaitGroup
}

type script struct {
	ctx  context.Context // of the waiting caller
	sha  string
	keys []string
	args []any
	cmd  *redis.Cmd
	done chan struct{}
}

func NewPipelined(c redis.UniversalClient) *Pipelined { return &Pipelined{UniversalClient: c} }

// EvalSha runs a script and returns its own error, whatever the errors of others in its
// pipeline. When ctx ends first, EvalSha returns, but the script may still run unless it has
// not been sent.
func (p *Pipelined) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if err := ctx.Err(); err != nil {
		return failedCmd(ctx, err)
	}
	s := &script{ctx: ctx, sha: sha, keys: keys, args: args, done: make(chan struct{})}
	p.mu.Lock()
	p.queue = append(p.queue, s)
	if p.inFlight < maxInFlight {
		p.inFlight++
		p.senders.Go(p.send)
	}
	p.mu.Unlock()
	select {
	case <-s.done:
		return s.cmd
	case <-ctx.Done():
		return failedCmd(ctx, ctx.Err())
	}
}

// send sends batches until the queue is empty.
func (p *Pipelined) send() {
	for {
		batch := p.nextBatch()
		if batch == nil {
			return
		}
		// The client's own time-outs bound the pipeline; the callers' contexts do not.
		ctx := context.Background()
		pipe := p.UniversalClient.Pipeline()
		for _, s := range batch {
			s.cmd = pipe.EvalSha(ctx, s.sha, s.keys, s.args...)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			setMissingErrors(batch, err)
		}
		for _, s := range batch {
			close(s.done)
		}
	}
}

// setMissingErrors sets the pipeline's error on its commands when none of them has one.
// go-redis leaves them so when it cannot dial, and commands without error would count as
// answered.
func setMissingErrors(batch []*script, err error) {
	for _, s := range batch {
		if s.cmd.Err() != nil {
			return // single commands failed: each has its own error
		}
	}
	for _, s := range batch {
		s.cmd.SetErr(err)
	}
}

func (p *Pipelined) nextBatch() []*script {
	p.mu.Lock()
	defer p.mu.Unlock()
	// While Redis does not answer, scripts of callers that gave up must not delay others.
	p.queue = slices.DeleteFunc(p.queue, func(s *script) bool { return s.ctx.Err() != nil })
	if len(p.queue) == 0 {
		p.inFlight--
		return nil
	}
	n := min(len(p.queue), maxBatch)
	batch := p.queue[:n:n]
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil
	}
	return batch
}

// Close waits for running pipelines, then closes the client.
func (p *Pipelined) Close() error {
	p.senders.Wait()
	return p.UniversalClient.Close()
}

func failedCmd(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}
