package postadjudication_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/postadjudication/deadletter"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
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

// conditionsOfATenant is how many conditions of one tenant are evaluated at once.
const conditionsOfATenant = 2

// A tenant may run two conditions at once, over all kinds of requests; other tenants are not
// affected, and every request releases its slot.
func TestATenantHasTwoConditionsAtOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	lettersOfThreeCauses(r)
	ctx := context.Background()
	ask := map[string]func(tenant string) error{
		"search": func(tenant string) error {
			_, err := r.As(tenant, "").DeadLetters.Search(ctx, deadletter.Search{Where: "held || can_fork", Limit: 10})
			return err
		},
		"export": func(tenant string) error {
			_, err := r.As(tenant, "").DeadLetters.Export(ctx, deadletter.Filter{}, "held || can_fork", deadletter.CSV, io.Discard)
			return err
		},
		"plan": func(tenant string) error {
			_, err := r.As(tenant, "user:ada").Bulk.Plan(ctx, rig.LettersWhere(bulk.Hold, "held || can_fork"))
			var nothing *bulk.NothingSelectedError
			if errors.As(err, &nothing) && tenant == "other" { // it had a slot
				return nil
			}
			return err
		},
	}
	release := make(chan struct{})
	ended := make(chan error, conditionsOfATenant)
	for range conditionsOfATenant {
		one := &blockingWriter{started: make(chan struct{}), release: release}
		go func() {
			_, err := r.As("acme", "").DeadLetters.Export(ctx, deadletter.Filter{}, "true", deadletter.JSON, one)
			ended <- err
		}()
		<-one.started
	}
	for name, one := range ask {
		if err := one("acme"); !errors.Is(err, deadletter.ErrTooManyConditions) {
			t.Errorf("a third %s: %v", name, err)
		}
		if err := one("other"); err != nil {
			t.Errorf("the %s of another tenant: %v", name, err)
		}
	}
	if _, err := r.As("acme", "").DeadLetters.Export(ctx, deadletter.Filter{}, "", deadletter.JSON, io.Discard); err != nil {
		t.Errorf("without a condition: %v", err)
	}
	close(release)
	for range conditionsOfATenant {
		if err := <-ended; err != nil {
			t.Errorf("an export that had a slot: %v", err)
		}
	}
	wrong := map[string]func() error{
		"search of a bad condition": func() error {
			_, err := r.As("acme", "").DeadLetters.Search(ctx, deadletter.Search{Where: "held ==", Limit: 1})
			return err
		},
		"search of a bad cursor": func() error {
			_, err := r.As("acme", "").DeadLetters.Search(ctx, deadletter.Search{Where: "held", Limit: 1, After: "x"})
			return err
		},
		"export of a bad format": func() error {
			_, err := r.As("acme", "").DeadLetters.Export(ctx, deadletter.Filter{}, "held", "xls", io.Discard)
			return err
		},
		"plan without a reason": func() error {
			_, err := r.As("acme", "").Bulk.Plan(ctx, bulk.Request{Action: bulk.Hold, Where: "held"})
			return err
		},
		"check of a bad condition": func() error { return r.As("acme", "").DeadLetters.CheckCondition(ctx, "held ==") },
	}
	for range conditionsOfATenant + 1 {
		if err := r.As("acme", "").DeadLetters.CheckCondition(ctx, "held"); err != nil {
			t.Errorf("a check: %v", err)
		}
	}
	for name, one := range wrong {
		for range conditionsOfATenant + 1 {
			var refused *refusal.FieldError
			if err := one(); !errors.As(err, &refused) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, one := range ask {
		for range conditionsOfATenant + 1 {
			if err := one("acme"); err != nil {
				t.Errorf("%s, when all have ended: %v", name, err)
			}
		}
	}
}

func TestAnExportWithAConditionEndsWithItsTime(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	insertLetters(r, 10)
	var out bytes.Buffer
	var refused *refusal.FieldError
	if _, err := r.ExportWithin(context.Background(), "acme", deadletter.Filter{}, "true", deadletter.JSONL, &out, -time.Second); !errors.As(err, &refused) || refused.Field != "where" || !strings.Contains(refused.Problem, "Narrow the filter") || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
	if done, err := r.ExportWithin(context.Background(), "acme", deadletter.Filter{}, "", deadletter.JSONL, &out, -time.Second); err != nil || done.Letters != 10 {
		t.Errorf("without a condition: %+v, %v", done, err)
	}
}
