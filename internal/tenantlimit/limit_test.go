package tenantlimit_test

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recourse-dev/recourse/internal/tenantlimit"
)

func TestNoMoreThanItsNumberRunAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		two := tenantlimit.New(2, 2)
		end := make(chan struct{})
		var running, ran atomic.Int64
		for range 50 {
			go func() {
				if err := two.Do(t.Context(), "acme", func() {
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
	one := tenantlimit.New(1, 1)
	ctx, leave := context.WithCancel(t.Context())
	if err := one.Do(ctx, "acme", func() {
		leave()
		if err := one.Do(ctx, "acme", func() { t.Error("it ran at the same time as another") }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}); err != nil {
		t.Error(err)
	}
	ran := false
	if err := one.Do(t.Context(), "acme", func() { ran = true }); err != nil || !ran {
		t.Errorf("%v, %v", ran, err)
	}
}

// However many functions of one tenant wait, another tenant gets the next free slot.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := tenantlimit.New(1, 1)
		end := make(chan struct{})
		order := make(chan string, 100)
		begin := func(tenant string) {
			go func() {
				if err := one.Do(t.Context(), tenant, func() { order <- tenant; <-end }); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		for range 10 {
			begin("acme")
		}
		begin("other")
		begin("bank")
		begin("other")
		for range 13 {
			end <- struct{}{}
			synctest.Wait()
		}
		var got []string
		for range 13 {
			got = append(got, <-order)
		}
		if want := []string{"acme", "acme", "other", "bank", "acme", "other"}; !slices.Equal(got[:6], want) {
			t.Errorf("%v", got)
		}
		if err := one.Do(t.Context(), "acme", func() {}); err != nil {
			t.Error(err)
		}
	})
}

// A tenant at its own maximum waits, and keeps no other tenant from the free slots.
func TestATenantRunsNoMoreThanItsOwnNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		four := tenantlimit.New(4, 2)
		ends := map[string]chan struct{}{"acme": make(chan struct{}), "other": make(chan struct{}), "bank": make(chan struct{})}
		var mu sync.Mutex
		running := map[string]int{}
		count := func(tenant string, n int) {
			mu.Lock()
			defer mu.Unlock()
			running[tenant] += n
		}
		begin := func(tenant string) {
			go func() {
				if err := four.Do(t.Context(), tenant, func() { count(tenant, 1); <-ends[tenant]; count(tenant, -1) }); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		want := func(acme, other, bank int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if running["acme"] != acme || running["other"] != other || running["bank"] != bank {
				t.Errorf("%v run, want %d of acme, %d of other, %d of bank", running, acme, other, bank)
			}
		}
		for range 5 {
			begin("acme")
		}
		want(2, 0, 0)
		for range 3 {
			begin("other")
		}
		want(2, 2, 0)
		begin("bank")
		want(2, 2, 0)
		ends["acme"] <- struct{}{} // acme and other wait at their own numbers; acme is below its own now, and first
		want(2, 2, 0)
		ends["acme"] <- struct{}{} // other is at its number, bank is not
		want(1, 2, 1)
		ends["bank"] <- struct{}{}
		want(2, 2, 0)
		for tenant, n := range map[string]int{"acme": 3, "other": 3} {
			for range n {
				ends[tenant] <- struct{}{}
			}
		}
		want(0, 0, 0)
		if err := four.Do(t.Context(), "acme", func() {}); err != nil {
			t.Error(err)
		}
	})
}

// While one function blocks on a read, others run; it continues once it has a slot again.
func TestAReadGivesThePlaceAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := tenantlimit.New(1, 1)
		in, out := io.Pipe()
		var text []byte
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := one.DoReading(t.Context(), "acme", in, func(r io.Reader) {
				var err error
				if text, err = io.ReadAll(r); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if err := one.Do(t.Context(), "other", func() {
			if _, err := out.Write([]byte("slow")); err != nil {
				t.Error(err)
			}
			if err := out.Close(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			select {
			case <-ended:
				t.Error("it ran at the same time as another")
			default:
			}
		}); err != nil {
			t.Error(err)
		}
		if <-ended; string(text) != "slow" {
			t.Errorf("%q", text)
		}
	})
}

// A reader whose context ended has no slot to release, and reads nothing more.
func TestAReadThatFindsNoPlaceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := tenantlimit.New(1, 1)
		in, out := io.Pipe()
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			var first, second error
			waited := one.DoReading(ctx, "acme", in, func(r io.Reader) {
				_, first = r.Read(make([]byte, 1))
				_, second = r.Read(make([]byte, 1))
			})
			if !errors.Is(first, context.Canceled) || !errors.Is(second, context.Canceled) {
				t.Errorf("%v, %v", first, second)
			}
			ended <- waited
		}()
		synctest.Wait()
		if err := one.Do(t.Context(), "other", func() {
			if _, err := out.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			leave()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			busy, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			if err := one.Do(busy, "bank", func() { t.Error("it ran at the same time as another") }); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}); err != nil {
			t.Error(err)
		}
		if err := one.Do(t.Context(), "acme", func() {}); err != nil {
			t.Error(err)
		}
	})
}

// A source that panics while its reader has given the slot away gives back no slot twice.
func TestAReaderWhoseSourcePanicsGivesItsSlotBackOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := tenantlimit.New(2, 1)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic of the source is lost")
				}
			}()
			err := one.DoReading(t.Context(), "acme", panickingReader{}, func(in io.Reader) { _, _ = io.ReadAll(in) })
			t.Errorf("it returned %v", err)
		}()
		end, ran := make(chan struct{}), atomic.Int32{}
		for range 2 {
			go func() {
				if err := one.Do(t.Context(), "acme", func() { ran.Add(1); <-end }); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if n := ran.Load(); n != 1 {
			t.Errorf("%d of one tenant run at once", n)
		}
		close(end)
		synctest.Wait()
	})
}

type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic("no such source") }

// What waits for the processor, or for the network, runs after each function, and not only when the
// caller is preempted.
func TestACallerOfManyFunctionsYieldsTheProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, do := range map[string]func() error{
		"Do": func() error { return tenantlimit.Processors().Do(t.Context(), "acme", func() {}) },
		"DoReading": func() error {
			return tenantlimit.Processors().DoReading(t.Context(), "acme", strings.NewReader("x"), func(in io.Reader) { _, _ = in.Read(make([]byte, 1)) })
		},
	} {
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var reads, ran, received atomic.Bool
		go func() {
			reads.Store(true)
			if _, err := in.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			received.Store(true)
		}()
		for !reads.Load() {
			runtime.Gosched()
		}
		go ran.Store(true)
		if _, err := out.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		for range 10 { // the runtime may let the caller run again first
			if err := do(); err != nil {
				t.Error(err)
			}
		}
		if !ran.Load() || !received.Load() {
			t.Errorf("%s: another goroutine waits until the caller is preempted: %v, %v", name, ran.Load(), received.Load())
		}
		for _, end := range []*os.File{in, out} {
			if err := end.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
