package postadjudication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/tenantlimit"
)

// blockingWriter blocks an export at its first write.
type blockingWriter struct {
	started, release chan struct{}
	once             sync.Once
}

func (w *blockingWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.started) })
	<-w.release
	return len(b), nil
}

// A tenant may run two conditions at once, over all kinds of requests; other tenants are not
// affected, and every request releases its slot.
func TestATenantHasTwoConditionsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	r.lettersOfThreeCauses()
	ctx := context.Background()
	ask := map[string]func(tenant string) error{
		"search": func(tenant string) error {
			_, err := r.As(tenant, "").DeadLetters.Search(ctx, LetterSearch{Where: "held || can_fork", Limit: 10})
			return err
		},
		"export": func(tenant string) error {
			_, err := r.As(tenant, "").DeadLetters.Export(ctx, LetterFilter{}, "held || can_fork", CSV, io.Discard)
			return err
		},
		"plan": func(tenant string) error {
			_, err := r.As(tenant, "user:ada").Bulk.Plan(ctx, planWhere(BulkHold, "held || can_fork"))
			var nothing *NothingSelectedError
			if errors.As(err, &nothing) && tenant == "other" { // it had a slot
				return nil
			}
			return err
		},
	}
	release := make(chan struct{})
	ended := make(chan error, maxConditionsPerTenant)
	for range maxConditionsPerTenant {
		one := &blockingWriter{started: make(chan struct{}), release: release}
		go func() {
			_, err := r.As("acme", "").DeadLetters.Export(ctx, LetterFilter{}, "true", JSON, one)
			ended <- err
		}()
		<-one.started
	}
	for name, one := range ask {
		if err := one("acme"); !errors.Is(err, ErrTooManyConditions) {
			t.Errorf("a third %s: %v", name, err)
		}
		if err := one("other"); err != nil {
			t.Errorf("the %s of another tenant: %v", name, err)
		}
	}
	if _, err := r.As("acme", "").DeadLetters.Export(ctx, LetterFilter{}, "", JSON, io.Discard); err != nil {
		t.Errorf("without a condition: %v", err)
	}
	close(release)
	for range maxConditionsPerTenant {
		if err := <-ended; err != nil {
			t.Errorf("an export that had a slot: %v", err)
		}
	}
	wrong := map[string]func() error{
		"search of a bad condition": func() error {
			_, err := r.As("acme", "").DeadLetters.Search(ctx, LetterSearch{Where: "held ==", Limit: 1})
			return err
		},
		"search of a bad cursor": func() error {
			_, err := r.As("acme", "").DeadLetters.Search(ctx, LetterSearch{Where: "held", Limit: 1, After: "x"})
			return err
		},
		"export of a bad format": func() error {
			_, err := r.As("acme", "").DeadLetters.Export(ctx, LetterFilter{}, "held", "xls", io.Discard)
			return err
		},
		"plan without a reason": func() error {
			_, err := r.As("acme", "").Bulk.Plan(ctx, BulkRequest{Action: BulkHold, Where: "held"})
			return err
		},
	}
	for name, one := range wrong {
		for range maxConditionsPerTenant + 1 {
			var refused *FieldError
			if err := one(); !errors.As(err, &refused) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, one := range ask {
		for range maxConditionsPerTenant + 1 {
			if err := one("acme"); err != nil {
				t.Errorf("%s, when all have ended: %v", name, err)
			}
		}
	}
	if l := r.conditionLimiter; l.active != 0 || len(l.byTenant) != 0 {
		t.Errorf("slots are still in use: %d, %v", l.active, l.byTenant)
	}
}

func TestAProcessHasConditionsOfFewTenantsAtOnce(t *testing.T) {
	t.Parallel()
	l := newExprLimiter()
	var releases []func()
	for i := range maxConditionsPerProcess {
		release, err := l.acquire(fmt.Sprint(i))
		if err != nil {
			t.Fatal(i, err)
		}
		releases = append(releases, release)
	}
	if _, err := l.acquire("one more"); !errors.Is(err, ErrTooManyConditions) {
		t.Errorf("%v", err)
	}
	releases[0]()
	if _, err := l.acquire("one more"); err != nil {
		t.Errorf("when one has ended: %v", err)
	}
}

func TestEvaluationsTakeTurns(t *testing.T) {
	t.Parallel()
	l := newExprLimiter()
	c, err := l.condition(t.Context(), "acme", "attempts == 3")
	if err != nil {
		t.Fatal(err)
	}
	defer c.done()
	l.cpu = tenantlimit.New(1, 1)
	ctx, leave := context.WithCancel(context.Background())
	if err := l.cpu.Do(ctx, "other", func() {
		leave()
		if _, err := c.Matches(ctx, exampleLetter()); !errors.Is(err, context.Canceled) {
			t.Errorf("without a free processor: %v", err)
		}
	}); err != nil {
		t.Error(err)
	}
	if met, err := c.Matches(context.Background(), exampleLetter()); err != nil || !met {
		t.Errorf("%v, %v", met, err)
	}
}

func TestAnExportWithAConditionEndsWithItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.insertLetters(10)
	var out bytes.Buffer
	var refused *FieldError
	if _, err := r.export(context.Background(), "acme", LetterFilter{}, "true", JSONL, &out, -time.Second); !errors.As(err, &refused) || refused.Field != "where" || !strings.Contains(refused.Problem, "Narrow the filter") || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
	if done, err := r.export(context.Background(), "acme", LetterFilter{}, "", JSONL, &out, -time.Second); err != nil || done.Letters != 10 {
		t.Errorf("without a condition: %+v, %v", done, err)
	}
}
