package asynqredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background/internal/asynqredis"
	"github.com/recourse-dev/recourse/internal/localredis"
)

func TestScriptsOfConcurrentCallersKeepTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	server, err := localredis.Start(context.Background(), localredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error("stop redis: ", err)
		}
	})
	c := asynqredis.NewPipelined(redis.NewClient(&redis.Options{Addr: server.Addr(), Password: server.Password()}))
	defer func() { _ = c.Close() }()
	echo := redis.NewScript(`if ARGV[1] == "13" then return redis.error_reply("unlucky") end return ARGV[1]`)
	if _, err := echo.Run(t.Context(), c, nil, "first").Result(); err != nil { // loads the script
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			n := i % 20
			got, err := echo.Run(t.Context(), c, []string{"k"}, n).Text()
			switch {
			case n == 13 && (err == nil || !strings.Contains(err.Error(), "unlucky")):
				t.Errorf("%d: %q, %v", n, got, err)
			case n != 13 && (err != nil || got != fmt.Sprint(n)):
				t.Errorf("%d: %q, %v", n, got, err)
			}
		})
	}
	all.Wait()
}

func TestScriptOnARedisThatIsAwayFails(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := asynqredis.NewPipelined(redis.NewClient(&redis.Options{Addr: addr}))
	defer func() { _ = c.Close() }()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := c.EvalSha(t.Context(), "00", nil).Err(); err == nil {
				t.Error("a script that never ran has no error")
			}
		})
	}
	all.Wait()
}

func TestCallerWhoseContextEndsStopsWaiting(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	c := asynqredis.NewPipelined(redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaxRetries: -1}))
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() { cancelled <- c.EvalSha(ctx, "00", nil).Err() }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := c.EvalSha(ctx, "00", nil).Err(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := errors.Join(conn.Close(), l.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// blockedRedis is a Redis that accepts pipelines and blocks their replies until it is released.
type blockedRedis struct {
	sent    atomic.Int64 // scripts
	unblock chan struct{}
}

func (f *blockedRedis) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		f.sent.Add(int64(len(cmds)))
		<-f.unblock
		return errors.New("no answer")
	}
}

func (f *blockedRedis) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *blockedRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// Scripts of callers that gave up are not sent: they delay neither other callers nor Close.
func TestScriptsOfCallersWhoLeftAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &blockedRedis{unblock: make(chan struct{})}
		client := redis.NewClient(&redis.Options{})
		client.AddHook(f)
		c := asynqredis.NewPipelined(client)
		var all sync.WaitGroup
		ask := func(ctx context.Context, want error) {
			all.Go(func() {
				if err := c.EvalSha(ctx, "00", nil).Err(); err == nil || want != nil && !errors.Is(err, want) {
					t.Error(err)
				}
			})
		}
		const underway, many, later = 2, 1000, 3
		for range underway {
			ask(t.Context(), nil)
			synctest.Wait()
		}
		ctx, leave := context.WithCancel(t.Context())
		for range many {
			ask(ctx, context.Canceled)
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		for range later {
			ask(t.Context(), nil)
		}
		synctest.Wait()
		close(f.unblock)
		all.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if sent := f.sent.Load(); sent != underway+later {
			t.Errorf("%d scripts were sent, want those of the %d waiting callers", sent, underway+later)
		}
	})
}
