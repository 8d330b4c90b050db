package postadjudication

import (
	"context"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/postadjudication/escrow"
	"github.com/recourse-dev/recourse/postadjudication/internal/casework"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/receipts"
)

func withMaxAge(age string) func(*Config) {
	return func(c *Config) { c.Retention = []RetentionRule{{Family: casework.Family, MaxAge: age}} }
}

// When retention is shortened, a letter whose expiry was announced is not purged before that
// expiry, and one that was not announced is announced now and has its seven days.
func TestAShorterAgeTakesNothingThatWasNotAnnouncedInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	announced, unannounced := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() }), r.deadLetter(2, func(escrow.Call) escrow.Answer { return refused() })
	if _, err := r.As("acme", "user:ada").DeadLetters.Hold(context.Background(), unannounced.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	archive := withArchive(t)
	r.retentionRig(archive, withMaxAge("P50D")).at(44 * validate.Day).prune(PruneReport{Announced: 1}) // expires on day 51
	if _, err := r.As("acme", "user:ada").DeadLetters.Release(context.Background(), unannounced.Run, holdReason); err != nil {
		t.Fatal(err)
	}
	k := r.retentionRig(archive, withMaxAge("P4D")).at(45 * validate.Day)
	k.prune(PruneReport{Announced: 1}) // a quarter of four days is one: expires on day 46
	if d, err := k.As("acme", "").DeadLetters.Annotations(context.Background(), announced.Run); err != nil || d.ExpiresAt == nil || d.ExpiresAt.Before(time.Now().Add(50*validate.Day)) {
		t.Errorf("%+v, %v", d, err)
	}
	k.at(45*validate.Day + 23*time.Hour).prune(PruneReport{})
	k.at(46*validate.Day + time.Hour).prune(PruneReport{Pruned: 1})
	if a, b := r.letterStatus(announced), r.letterStatus(unannounced); a != background.LetterOpen || b != background.LetterPurged {
		t.Errorf("the announced one is %s, the other %s", a, b)
	}
	k.at(50*validate.Day + 23*time.Hour).prune(PruneReport{})
	k.at(51*validate.Day + time.Hour).prune(PruneReport{Pruned: 1})
	for _, s := range []Submitted{announced, unannounced} {
		ending, expired := r.payloadsOf(s, receipts.RetentionEnding), r.payloadsOf(s, receipts.RetentionExpired)
		if len(ending) != 1 || len(expired) != 1 || !ending[0].ExpiresAt.Equal(expired[0].ExpiresAt) {
			t.Errorf("%+v, %+v", ending, expired)
		}
	}
	r.mustAudit()
}

// When retention is prolonged, the later expiry counts, and nothing is announced twice.
func TestALongerAgeKeepsWhatWasAnnounced(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	archive := withArchive(t)
	r.retentionRig(archive, withMaxAge("P50D")).at(44 * validate.Day).prune(PruneReport{Announced: 1})
	k := r.retentionRig(archive, withMaxAge("P100D")).at(99 * validate.Day)
	k.prune(PruneReport{})
	k.at(101 * validate.Day).prune(PruneReport{Pruned: 1})
	if n := len(r.payloadsOf(letter, receipts.RetentionEnding)); n != 1 {
		t.Errorf("announced %d times", n)
	}
	r.mustAudit()
}

// A letter that an older version announced without storing the expiry is announced again.
func TestAnAnnouncementWithoutAnEndIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t).startWorkers()
	letter := r.deadLetter(1, func(escrow.Call) escrow.Answer { return refused() })
	if _, err := r.db.Exec(`INSERT INTO recourse.annotations (run_id, tenant, announced) VALUES ($1, 'acme', true)`, letter.Run.String()); err != nil {
		t.Fatal(err)
	}
	k := r.retentionRig(withArchive(t)).at(181 * validate.Day)
	k.prune(PruneReport{Announced: 1})
	k.at(189 * validate.Day).prune(PruneReport{Pruned: 1})
	r.mustAudit()
}
