package doctor_test

import (
	"strings"
	"testing"
	"time"

	_ "github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/access"
	"github.com/recourse-dev/recourse/internal/cli/doctor"
	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
)

func TestKeysThatNeverEndEndSoonOrAreUnusedAreNamed(t *testing.T) {
	t.Parallel()
	url := testkit.Migrated(t)
	service, err := postadjudication.Open(t.Context(), postadjudication.Config{DatabaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	made := func(n postadjudication.NewKey) string {
		n.Principal, n.Roles, n.Reason = "user:ada", []access.Role{access.Auditor}, "test"
		_, k, err := service.As("acme", "root").Keys.Create(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return k.Prefix
	}
	check := func() doctor.Check { return find(t, doctor.Examine(t.Context(), url, nil), "access keys") }
	fresh, soon := made(postadjudication.NewKey{}), time.Now().Add(29*24*time.Hour)
	if c := check(); c.Verdict != doctor.Fine {
		t.Errorf("%+v", c)
	}
	endless, ending, followed, unused := made(postadjudication.NewKey{NeverExpires: "a locked device"}), made(postadjudication.NewKey{ExpiresAt: soon}), made(postadjudication.NewKey{ExpiresAt: soon}), made(postadjudication.NewKey{})
	if _, _, err := service.As("acme", "root").Keys.Rotate(t.Context(), postadjudication.KeyRotation{Prefix: followed, Reason: "ends"}); err != nil {
		t.Fatal(err)
	}
	db := testkit.OpenAsOwner(t, url)
	if _, err := db.Exec(`UPDATE recourse.keys SET created_at = created_at - interval '91 days' WHERE prefix = $1`, unused); err != nil {
		t.Fatal(err)
	}
	c := check()
	if want := "never expire: " + endless + " (user:ada of acme); expire within 30 days and have no successor: " + ending + " (user:ada of acme); were not used for 90 days: " + unused + " (user:ada of acme)"; c.Verdict != doctor.Hint || c.Result != want {
		t.Errorf("%+v, want %s", c, want)
	}
	for _, prefix := range []string{fresh, followed} {
		if strings.Contains(c.Result, prefix) {
			t.Errorf("%s is named: %s", prefix, c.Result)
		}
	}
}
