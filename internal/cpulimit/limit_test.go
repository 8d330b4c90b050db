package cpulimit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/recourse-dev/recourse/internal/cpulimit"
)

func TestNoMoreThanItsNumberRunAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		two := cpulimit.New(2)
		end := make(chan struct{})
		var running, ran atomic.Int64
		for range 50 {
			go func() {
				if err := two.Do(t.Context(), func() {
					running.Add(1)
					<-end
					running.Add(-1)
					ran.Add(1)
				}); err != nil {
					t.Error(err)
				}
			}()
		}
		for range 50 {
			synctest.Wait()
			if n, left := running.Load(), 50-ran.Load(); n != min(2, left) {
				t.Errorf("%d run at once, %d are left", n, left)
			}
			end <- struct{}{}
		}
		synctest.Wait()
		if n := ran.Load(); n != 50 {
			t.Errorf("%d ran", n)
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	one := cpulimit.New(1)
	ctx, leave := context.WithCancel(t.Context())
	if err := one.Do(ctx, func() {
		leave()
		if err := one.Do(ctx, func() { t.Error("it ran beside another") }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}); err != nil {
		t.Error(err)
	}
	ran := false
	if err := one.Do(t.Context(), func() { ran = true }); err != nil || !ran {
		t.Errorf("%v, %v", ran, err)
	}
}
