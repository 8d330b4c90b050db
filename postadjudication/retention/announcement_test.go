package retention_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/retention"
	"github.com/recourse-dev/recourse/receipts"
)

func withMaxAge(age string) func(*postadjudication.Config) {
	return func(c *postadjudication.Config) {
		c.Retention = []retention.Rule{{Family: postadjudication.Family, MaxAge: age}}
	}
}

// When retention is shortened, a letter whose expiry was announced is not purged before that
// expiry, and one that was not announced is announced now and has its seven days.
func TestAShorterAgeTakesNothingThatWasNotAnnouncedInTime(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	announced, unannounced := r.DeadLetter(1, rig.Refuses), r.DeadLetter(2, rig.Refuses)
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(context.Background(), unannounced.Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	archive := rig.WithArchive(t)
	r.NewPruner(archive, withMaxAge("P50D")).At(44 * day).MustPrune(retention.Report{Announced: 1}) // expires on day 51
	if _, err := r.As("acme", "user:ada").DeadLetters.Release(context.Background(), unannounced.Run, "the auditors asked for it"); err != nil {
		t.Fatal(err)
	}
	k := r.NewPruner(archive, withMaxAge("P4D")).At(45 * day)
	k.MustPrune(retention.Report{Announced: 1}) // a quarter of four days is one: expires on day 46
	if d, err := k.As("acme", "").DeadLetters.Annotations(context.Background(), announced.Run); err != nil || d.ExpiresAt == nil || d.ExpiresAt.Before(time.Now().Add(50*day)) {
		t.Errorf("%+v, %v", d, err)
	}
	k.At(45*day + 23*time.Hour).MustPrune(retention.Report{})
	k.At(46*day + time.Hour).MustPrune(retention.Report{Pruned: 1})
	if a, b := r.LetterStatus(announced), r.LetterStatus(unannounced); a != background.LetterOpen || b != background.LetterPurged {
		t.Errorf("the announced one is %s, the other %s", a, b)
	}
	k.At(50*day + 23*time.Hour).MustPrune(retention.Report{})
	k.At(51*day + time.Hour).MustPrune(retention.Report{Pruned: 1})
	for _, s := range []postadjudication.Submitted{announced, unannounced} {
		ending, expired := r.Payloads(s, receipts.RetentionEnding), r.Payloads(s, receipts.RetentionExpired)
		if len(ending) != 1 || len(expired) != 1 || !ending[0].ExpiresAt.Equal(expired[0].ExpiresAt) {
			t.Errorf("%+v, %+v", ending, expired)
		}
	}
	r.MustAudit()
}

// When retention is prolonged, the later expiry counts, and nothing is announced twice.
func TestALongerAgeKeepsWhatWasAnnounced(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	archive := rig.WithArchive(t)
	r.NewPruner(archive, withMaxAge("P50D")).At(44 * day).MustPrune(retention.Report{Announced: 1})
	k := r.NewPruner(archive, withMaxAge("P100D")).At(99 * day)
	k.MustPrune(retention.Report{})
	k.At(101 * day).MustPrune(retention.Report{Pruned: 1})
	if n := len(r.Payloads(letter, receipts.RetentionEnding)); n != 1 {
		t.Errorf("announced %d times", n)
	}
	r.MustAudit()
}

// A letter that an older version announced without storing the expiry is announced again.
func TestAnAnnouncementWithoutAnEndIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := rig.New(t).StartWorkers()
	letter := r.DeadLetter(1, rig.Refuses)
	if _, err := r.DB.Exec(`INSERT INTO recourse.annotations (run_id, tenant, announced) VALUES ($1, 'acme', true)`, letter.Run.String()); err != nil {
		t.Fatal(err)
	}
	k := r.NewPruner(rig.WithArchive(t)).At(181 * day)
	k.MustPrune(retention.Report{Announced: 1})
	k.At(189 * day).MustPrune(retention.Report{Pruned: 1})
	r.MustAudit()
}

func TestRetentionThatCannotWorkIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	chores := []postadjudication.PlainFamily{{Name: "chores", Handle: rig.SucceedTask}}
	for _, rules := range [][]retention.Rule{
		{{Family: "none"}}, {{Family: postadjudication.Family, MaxAge: "P1"}}, {{}}, {{Family: postadjudication.Family, MaxAge: "180 days"}}, {{Family: postadjudication.Family, MaxCount: -1}},
		{{Family: postadjudication.Family, Pruning: retention.Delete}}, {{Family: "chores", Pruning: "drop"}}, {{Family: "chores", Pruning: retention.ToArchive}},
		{{Family: postadjudication.Family, Queue: "chores:0"}}, {{Family: postadjudication.Family, Queue: postadjudication.Family}}, {{Family: postadjudication.Family, Queue: postadjudication.Family + ":x"}}, {{Family: postadjudication.Family, Queue: postadjudication.Family + ":01"}},
		{{Family: postadjudication.Family, MaxAge: "P1D"}, {Family: postadjudication.Family, MaxAge: "P2D"}},
		{{Family: postadjudication.Family, Queue: postadjudication.Family + ":0"}, {Family: postadjudication.Family, Queue: postadjudication.Family + ":0"}},
	} {
		c := postadjudication.Config{DatabaseURL: r.DatabaseURL, Redis: r.Redis, Families: chores, Retention: rules}
		if _, err := postadjudication.Open(context.Background(), c); err == nil || !strings.Contains(err.Error(), "Config.Retention[") {
			t.Errorf("%+v is taken: %v", rules, err)
		}
	}
}
