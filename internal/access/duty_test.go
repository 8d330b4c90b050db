package access_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/access"
)

func TestAWorkerFetchesFromTheQueuesOfItsKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		queues []string
		roles  []access.Role
		queue  string
		pays   bool
		may    bool
	}{
		{nil, []access.Role{access.Worker}, "mail", false, true},
		{nil, []access.Role{access.Worker}, "payouts", true, false},
		{[]string{"mail"}, []access.Role{access.Worker}, "mail", false, true},
		{[]string{"mail"}, []access.Role{access.Worker}, "mails", false, false},
		{[]string{"mail"}, []access.Role{access.Worker}, "payouts", true, false},
		{[]string{"mail", "pay*"}, []access.Role{access.Worker}, "payouts", true, true},
		{[]string{"*.eu"}, []access.Role{access.Worker}, "payouts.eu", true, true},
		{[]string{"*.eu"}, []access.Role{access.Worker}, "payouts.us", true, false},
		{[]string{"*"}, []access.Role{access.Worker, access.Auditor}, "payouts", true, true},
		{[]string{"*"}, []access.Role{access.Worker, access.Submitter}, "payouts", true, false},
		{[]string{"*"}, []access.Role{access.Worker, access.Submitter}, "mail", false, true},
	} {
		k := access.Key{Queues: c.queues, Roles: c.roles}
		if may := k.MayFetch(c.queue, c.pays); may != c.may {
			t.Errorf("%v of %v fetches from %s (pays: %v): %v", c.roles, c.queues, c.queue, c.pays, may)
		}
	}
}

func TestQueuesOfAKeyAreChecked(t *testing.T) {
	t.Parallel()
	worker := []access.Role{access.Worker}
	for _, good := range [][]string{nil, {"payouts"}, {"*"}, {"mail.*", "payouts-[ab]"}} {
		if err := access.CheckQueues(good, worker); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
	for _, bad := range [][]string{{""}, {"a b"}, {"a,b"}, {"a/b"}, {"[a"}, {"mail", "mail"}, {"\xff"}, {strings.Repeat("a", 129)}, strings.Split(strings.Repeat("a", 51), "")} {
		if err := access.CheckQueues(bad, worker); err == nil {
			t.Errorf("%q is valid", bad)
		}
	}
	if err := access.CheckQueues([]string{"payouts"}, []access.Role{access.Auditor}); err == nil {
		t.Error("an auditor has queues")
	}
}

func TestAKeyGrantsOnlyItsOwnQueues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ own, given, beyond []string }{
		{nil, nil, nil},
		{nil, []string{"mail"}, []string{"mail"}},
		{[]string{"mail", "sms"}, []string{"mail"}, nil},
		{[]string{"mail"}, []string{"mail", "payouts"}, []string{"payouts"}},
		{[]string{"*"}, []string{"payouts"}, []string{"payouts"}},
		{[]string{"mail"}, nil, []string{"*"}},
	} {
		if got := access.UngrantableQueues(c.own, c.given); !slices.Equal(got, c.beyond) {
			t.Errorf("%v of %v: %v", c.given, c.own, got)
		}
	}
}

// Each pair of roles, in one key and in two, in both orders: who pays decides nothing.
func TestWhoPaysDecidesNothing(t *testing.T) {
	t.Parallel()
	paying := []string{"payouts"}
	for _, role := range access.Roles() {
		mixes := role != access.Worker && role != access.Auditor
		payer := access.Key{Prefix: "payer", Tenant: "acme", Principal: "user:ada", Roles: []access.Role{access.Worker}, Queues: []string{"pay*"}}
		other := access.Key{Prefix: "other", Tenant: "acme", Principal: "user:ADA", Roles: []access.Role{role}}
		both := payer
		both.Roles = []access.Role{access.Worker, role}
		stranger := other
		stranger.Principal = "user:ben"
		mailer := payer
		mailer.Queues = []string{"mail"}
		for what, c := range map[string]struct {
			key    access.Key
			others []access.Key
			mixed  bool
		}{
			"payer after":          {payer, []access.Key{stranger, other}, mixes},
			"decider after":        {other, []access.Key{stranger, payer}, mixes},
			"one key":              {both, nil, mixes},
			"another principal":    {payer, []access.Key{stranger}, false},
			"no payment queue":     {mailer, []access.Key{other}, false},
			"decider beside mails": {other, []access.Key{mailer}, false},
		} {
			err := access.CheckDuties(&c.key, c.others, paying)
			if mixed := (*access.DutiesError)(nil); errors.As(err, &mixed) != c.mixed || c.mixed && mixed.Queue != "payouts" {
				t.Errorf("%s, %s: %v", role, what, err)
			}
		}
	}
}
