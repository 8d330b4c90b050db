package postadjudication

import (
	"context"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/receipts"
)

func keptFor(age string) func(*Config) {
	return func(c *Config) { c.Retention = []RetentionRule{{Family: Family, MaxAge: age}} }
}

// Letters come to be kept for less: one whose end was announced is not taken before
// that end, one of which nothing was said is announced now and has its seven days.
func TestAShorterAgeTakesNothingThatWasNotAnnouncedInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	told, untold := r.dead(1, func(Call) Answer { return refused() }), r.dead(2, func(Call) Answer { return refused() })
	if _, err := r.Hold(context.Background(), "acme", untold.Run, please); err != nil {
		t.Fatal(err)
	}
	archive := inArchive(t)
	r.keeper(archive, keptFor("P50D")).at(44 * day).prune(PruneReport{Warned: 1}) // ends on day 51
	if _, err := r.ReleaseHold(context.Background(), "acme", untold.Run, please); err != nil {
		t.Fatal(err)
	}
	k := r.keeper(archive, keptFor("P4D")).at(45 * day)
	k.prune(PruneReport{Warned: 1}) // a quarter of four days is one: ends on day 46
	if d, err := k.Desk(context.Background(), "acme", told.Run); err != nil || d.ExpiresAt == nil || d.ExpiresAt.Before(time.Now().Add(50*day)) {
		t.Errorf("%+v, %v", d, err)
	}
	k.at(45*day + 23*time.Hour).prune(PruneReport{})
	k.at(46*day + time.Hour).prune(PruneReport{Pruned: 1})
	if a, b := r.standing(told), r.standing(untold); a != background.LetterOpen || b != background.LetterPurged {
		t.Errorf("the one that was told of is %s, the other %s", a, b)
	}
	k.at(50*day + 23*time.Hour).prune(PruneReport{})
	k.at(51*day + time.Hour).prune(PruneReport{Pruned: 1})
	for _, s := range []Submitted{told, untold} {
		ending, expired := r.told(s, receipts.RetentionEnding), r.told(s, receipts.RetentionExpired)
		if len(ending) != 1 || len(expired) != 1 || !ending[0].ExpiresAt.Equal(expired[0].ExpiresAt) {
			t.Errorf("%+v, %+v", ending, expired)
		}
	}
	r.sound()
}

// Letters come to be kept for longer: the new end counts, and nothing is said twice.
func TestALongerAgeKeepsWhatWasAnnounced(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	letter := r.dead(1, func(Call) Answer { return refused() })
	archive := inArchive(t)
	r.keeper(archive, keptFor("P50D")).at(44 * day).prune(PruneReport{Warned: 1})
	k := r.keeper(archive, keptFor("P100D")).at(99 * day)
	k.prune(PruneReport{})
	k.at(101 * day).prune(PruneReport{Pruned: 1})
	if n := len(r.told(letter, receipts.RetentionEnding)); n != 1 {
		t.Errorf("announced %d times", n)
	}
	r.sound()
}

// What an older program announced, which did not keep the end, is announced again.
func TestAnAnnouncementWithoutAnEndIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t).work()
	letter := r.dead(1, func(Call) Answer { return refused() })
	if _, err := r.db.Exec(`INSERT INTO recourse.desk (run_id, tenant, warned) VALUES ($1, 'acme', true)`, letter.Run.String()); err != nil {
		t.Fatal(err)
	}
	k := r.keeper(inArchive(t)).at(181 * day)
	k.prune(PruneReport{Warned: 1})
	k.at(189 * day).prune(PruneReport{Pruned: 1})
	r.sound()
}
