package background

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// maxBatch bounds the scripts of one round trip.
	maxBatch = 256
	// maxInFlight bounds round trips at one time: the second takes what came while the
	// first was on its way.
	maxInFlight = 2
)

// pipelined is a Redis client whose EvalSha sends the scripts of concurrent
// callers together. A lone caller is not kept waiting for company. asynq does
// nearly everything by EvalSha.
type pipelined struct {
	redis.UniversalClient

	mu       sync.Mutex
	queue    []*script
	inFlight int
	senders  sync.WaitGroup
}

type script struct {
	ctx  context.Context // of the caller who waits for it
	sha  string
	keys []string
	args []any
	cmd  *redis.Cmd
	done chan struct{}
}

func newPipelined(c redis.UniversalClient) *pipelined { return &pipelined{UniversalClient: c} }

// EvalSha runs a script and answers its own error, whatever became of the others
// in its pipeline. When ctx ends first, the caller stops waiting, but the script
// may still run, unless it has not been sent.
func (p *pipelined) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
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

// send sends what is queued until nothing is.
func (p *pipelined) send() {
	for {
		batch := p.nextBatch()
		if batch == nil {
			return
		}
		// The callers' contexts don't bound the pipeline: the client's own time-outs do.
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

// setMissingErrors gives the pipeline's error to its commands when none of them has one: so
// go-redis leaves them when it cannot dial, and without a cause they would pass for
// answered.
func setMissingErrors(batch []*script, err error) {
	for _, s := range batch {
		if s.cmd.Err() != nil {
			return // the pipeline failed by single commands, each has its own answer
		}
	}
	for _, s := range batch {
		s.cmd.SetErr(err)
	}
}

func (p *pipelined) nextBatch() []*script {
	p.mu.Lock()
	defer p.mu.Unlock()
	// While Redis does not answer, those who gave up must not queue up before others.
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

// Close waits for what is on its way, then closes the client.
func (p *pipelined) Close() error {
	p.senders.Wait()
	return p.UniversalClient.Close()
}

func failedCmd(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}
