package door

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/tenantlimit"
)

// oneKey is a store of one key.
type oneKey struct{ key access.Key }

func (s *oneKey) FindKey(context.Context, string) (access.Key, error) { return s.key, nil }

func (*oneKey) UseKey(context.Context, uuid.UUID, time.Time) error { return nil }

// A read that waits for its turn until its key has ended reads nothing.
func TestAReadThatWaitsLongerThanItsKeyIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		token, prefix, digest := access.Mint()
		store := &oneKey{access.Key{Prefix: prefix, Digest: digest}}
		now := time.Now()
		keys, err := access.NewKeyring(store, func() time.Time { return now }, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		d := &Door{reads: tenantlimit.New(1, 1), answerQuota: newQuota(1, 1, 0), keys: keys}
		ctx := context.WithValue(t.Context(), requestKey{}, &request{caller: Caller{Tenant: "acme", token: token}})
		release := make(chan struct{})
		for range 2 {
			go func() {
				if err := d.Read(ctx, "acme", func() { <-release }); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		release <- struct{}{}
		synctest.Wait() // the second has its turn, and the third waits
		refused := make(chan error, 1)
		go func() { refused <- d.Read(ctx, "acme", func() { t.Error("it reads with a revoked key") }) }()
		synctest.Wait()
		revokedAt := now
		store.key.RevokedAt, now = &revokedAt, now.Add(access.CacheTTL)
		close(release)
		var why *Refusal
		if err := <-refused; !errors.As(err, &why) || why.Status != http.StatusUnauthorized || why.Code != "key_revoked" {
			t.Errorf("%v", err)
		}
	})
}
