package background_test

import (
	"context"
	"testing"

	"github.com/recourse-dev/recourse/internal/localredis"
)

// startRedis starts a Redis of the test's own and returns it.
func startRedis(t *testing.T) *localredis.Server {
	t.Helper()
	s, err := localredis.Start(context.Background(), localredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error("stop redis: ", err)
		}
	})
	return s
}
