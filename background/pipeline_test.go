package background_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/background"
)

func TestScriptsOfConcurrentCallersKeepTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	c := background.NewPipelined(redis.NewClient(&redis.Options{Addr: startRedis(t).Addr()}))
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
	c := background.NewPipelined(redis.NewClient(&redis.Options{Addr: addr}))
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
	c := background.NewPipelined(redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaxRetries: -1}))
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
