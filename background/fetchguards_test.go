package background_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/background/backgroundtest"
	"github.com/recourse-dev/recourse/background/lease"
	"github.com/recourse-dev/recourse/receipts"
)

// unconnectedFetcher returns the fetcher of a manager that has no Redis.
func unconnectedFetcher(t *testing.T, leases func(*backgroundtest.Journal) background.LeaseStore) (*background.Fetcher, *backgroundtest.Journal) {
	t.Helper()
	j := backgroundtest.NewJournal(1)
	j.SetReliable(true)
	m, err := background.New(background.Config{
		Redis: asynq.RedisClientOpt{Addr: "127.0.0.1:1"}, Store: j, Leases: leases(j), ClockSimulated: true,
		Families: []background.Family{&backgroundtest.Family{Journal: j, FamilyName: family, AttemptLimit: time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m.Fetcher(), j
}

func leasesOf(j *backgroundtest.Journal) background.LeaseStore { return j.Leases() }

// paymentOfAWorker is a run of money that two attempts of remote workers left unknown.
func paymentOfAWorker() background.Run {
	return background.Run{
		ID: background.RunID(uuid.New()), Family: family, Tenant: "acme", RetryKey: "job", Queue: mail, Remote: true, Operation: [32]byte{1},
		State: background.Scheduled, Attempt: 2, Class: background.Unknown, UnknownOpen: 1, OutstandingCalls: []int{1, 2},
	}
}

// An answer to an attempt that has ended is recorded if it can only be that attempt's and tells of money. Nothing else
// may change a run.
func TestWhichLateAnswersOfRemoteWorkersAreRecorded(t *testing.T) {
	t.Parallel()
	f, j := unconnectedFetcher(t, leasesOf)
	only := func(r *background.Run) { r.Attempt, r.OutstandingCalls = 1, []int{1} }
	running := func(r *background.Run) { r.State = background.Running }
	for name, c := range map[string]struct {
		change   func(*background.Run)
		attempt  int // that the worker names
		answer   background.Result
		recorded int // number of the attempt; 0: nothing
	}{
		"an earlier attempt's":                    {nil, 1, refused, 1},
		"the last attempt's":                      {nil, 2, paid, 2},
		"of an attempt that was never made":       {nil, 3, paid, 0},
		"names none, there was one":               {only, 0, paid, 1},
		"names another, there was one":            {only, 2, paid, 0},
		"names none of two":                       {nil, 0, paid, 0},
		"names none of two that run":              {running, 0, paid, 0},
		"of the attempt that runs":                {running, 2, paid, 0},
		"of an attempt before the one that runs":  {running, 1, paid, 1},
		"tells nothing":                           {nil, 2, vague, 0},
		"from another tenant":                     {func(r *background.Run) { r.Tenant = "umbrella" }, 2, paid, 0},
		"of a run that this process delivers":     {func(r *background.Run) { r.Remote = false }, 2, paid, 0},
		"of a run that moves no money":            {func(r *background.Run) { r.Operation = [32]byte{} }, 2, paid, 0},
		"of a family that this process lacks":     {func(r *background.Run) { r.Family = "other" }, 2, paid, 0},
		"a refusal of an attempt answered before": {func(r *background.Run) { r.OutstandingCalls = []int{2} }, 1, refused, 0},
	} {
		run := paymentOfAWorker()
		if c.change != nil {
			c.change(&run)
		}
		run = j.Submit(run)
		ended, err := f.Finish(t.Context(), lease.Held{Run: run.ID, Tenant: "acme", Attempt: c.attempt, Actor: "service:mailer"}, c.answer)
		recorded := j.Transitions(run.ID)
		switch {
		case err == nil || len(recorded) != min(1, c.recorded):
			t.Errorf("%s: recorded %+v; %+v, %v", name, recorded, ended, err)
		case c.recorded > 0:
			tr := recorded[0]
			if !errors.Is(err, background.ErrConflict) || tr.Subtype != receipts.AnsweredLate || tr.Run.Attempt != c.recorded || tr.Actor != "service:mailer" || tr.Result.Class != c.answer.Class {
				t.Errorf("%s: %+v, %v", name, tr, err)
			}
		}
	}
}

// A lease is ended for the tenant whose run it is and, where money is at stake, by an answer that names the attempt.
func TestAnAnswerEndsOnlyTheLeaseThatItNames(t *testing.T) {
	t.Parallel()
	f, j := unconnectedFetcher(t, leasesOf)
	for name, c := range map[string]struct {
		tenant  string
		attempt int // that the worker names
		money   bool
		want    error
	}{
		"names the attempt":              {"acme", 3, true, nil},
		"names no attempt":               {"acme", 0, true, background.ErrNotHolder},
		"names no attempt, for no money": {"acme", 0, false, nil},
		"another tenant":                 {"umbrella", 3, true, background.ErrNotFound},
		"another tenant, for no money":   {"umbrella", 3, false, background.ErrNotFound},
	} {
		run := paymentOfAWorker()
		if run.DueAt = time.Now().Add(-time.Second); !c.money {
			run.Operation = [32]byte{}
		}
		run = j.Submit(run)
		if claimed, err := f.Fetch(t.Context(), wantMail(1)); err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		_, err := f.Finish(t.Context(), lease.Held{Run: run.ID, Tenant: c.tenant, Attempt: c.attempt}, paid)
		if ended := len(j.Transitions(run.ID)) > 1; !errors.Is(err, c.want) || ended != (c.want == nil) {
			t.Errorf("%s: ended %v, %v", name, ended, err)
		}
	}
}

// refusing is a store that refuses one of the runs that a fetch is to get first.
type refusing struct {
	background.LeaseStore
	first  []background.Claimed
	rounds int
}

func (s *refusing) ClaimDue(context.Context, time.Time, lease.Want, func(background.Run) background.Transition) ([]background.Claimed, error) {
	if s.rounds++; s.rounds == 1 {
		return s.first, nil
	}
	return nil, nil
}

// A fetch with a key gets what its key got: what it lacks because a run was refused, a repetition would not get either.
func TestAFetchWithAKeyIsNotFilledUpAfterARefusal(t *testing.T) {
	t.Parallel()
	good, bad := background.Claimed{Run: paymentOfAWorker()}, background.Claimed{Run: paymentOfAWorker(), Err: background.ErrConflict}
	for name, c := range map[string]struct {
		key             lease.FetchKey
		first           []background.Claimed
		claimed, rounds int
	}{
		"with a key":                      {lease.FetchKey{1}, []background.Claimed{good, bad}, 1, 1},
		"with a key, and nothing claimed": {lease.FetchKey{1}, []background.Claimed{bad}, 0, 2},
		"without a key":                   {lease.FetchKey{}, []background.Claimed{good, bad}, 1, 2},
		"nothing refused":                 {lease.FetchKey{}, []background.Claimed{good}, 1, 1},
	} {
		s := &refusing{first: c.first}
		f, _ := unconnectedFetcher(t, func(j *backgroundtest.Journal) background.LeaseStore {
			s.LeaseStore = j.Leases()
			return s
		})
		want := wantMail(3)
		want.Key = c.key
		if claimed, err := f.Fetch(t.Context(), want); err != nil || s.rounds != c.rounds || len(claimed) != c.claimed {
			t.Errorf("%s: %d runs in %d rounds, %v", name, len(claimed), s.rounds, err)
		}
	}
}
