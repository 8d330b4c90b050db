package doctor_test

import (
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/cli/doctor"
	"github.com/recourse-dev/recourse/internal/testkit"
)

func TestWebhooksThatNeedAPersonAreAHint(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	if c := find(t, doctor.Examine(t.Context(), url, nil), "webhooks"); c.Verdict != doctor.Fine || !strings.HasPrefix(c.Result, "0,") {
		t.Errorf("%+v", c)
	}
	testkit.Tamper(t, testkit.OpenAsOwner(t, url), `INSERT INTO recourse.webhooks (id, tenant, version, state, definition, secret, created_at, created_by, changed_at, changed_by, reason)
			SELECT gen_random_uuid(), 'acme', 1, state, '{}', '', now(), 'user:ada', now(), 'user:ada', 'x' FROM unnest(ARRAY['active', 'paused']) AS s(state)`,
		`INSERT INTO recourse.webhook_positions (webhook_id, tenant, version, read_to, pending, failing_since) SELECT id, tenant, 1, 0, '{}', now() - interval '2 hours' FROM recourse.webhooks`)
	if c := find(t, doctor.Examine(t.Context(), url, nil), "webhooks"); c.Verdict != doctor.Hint || !strings.Contains(c.Result, "1 paused") || !strings.Contains(c.Result, "1 failing, the longest since") || c.Remedy == "" {
		t.Errorf("%+v", c)
	}
}
