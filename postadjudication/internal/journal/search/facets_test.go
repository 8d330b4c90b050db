package search_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/recourse-dev/recourse/internal/testkit"
)

// Changes of letters never leave one outside the bounds of its facet group, and the counts
// of groups stay right.
func TestNoLetterIsOutsideTheBoundsOfItsFacetGroup(t *testing.T) {
	t.Parallel()
	db := testkit.OpenAsOwner(t, testkit.Migrated(t))
	seed := time.Now().UnixNano()
	insertLetters(t, db, randomLetters(rand.New(rand.NewPCG(uint64(seed), 3)), 200))
	for _, change := range []string{
		`SELECT`,
		`UPDATE recourse.letters SET amount = amount * 3 - 20 WHERE attempts = 2`,
		`UPDATE recourse.letters SET last_seen_at = last_seen_at + interval '3 days' WHERE attempts = 3`,
		`UPDATE recourse.letters SET attempts = attempts + 5, dead_at = dead_at - interval '1 hour' WHERE amount % 2 = 0`,
		`UPDATE recourse.letters SET facet_group = (SELECT max(facet_group) FROM recourse.letters) WHERE attempts = 1`, // all letters of some groups
		`DELETE FROM recourse.letters WHERE amount % 3 = 0`,
		`UPDATE recourse.letters SET facet_group = (SELECT min(id) FROM recourse.facet_groups), replays = 9 WHERE replays = 0`, // one that may be empty
	} {
		if _, err := db.Exec(change); err != nil {
			t.Fatalf("%s: %v", change, err)
		}
		var letters, outside, miscounted int
		if err := db.QueryRow(`SELECT count(l.*), count(*) FILTER (WHERE l.run_id IS NOT NULL AND NOT coalesce(
    extract(epoch FROM l.dead_at) * 1000000 BETWEEN s.first_dead AND s.last_dead AND extract(epoch FROM l.last_seen_at) * 1000000 BETWEEN s.first_seen AND s.last_seen
    AND l.amount BETWEEN s.least_amount AND s.most_amount AND l.attempts BETWEEN s.least_attempts AND s.most_attempts
    AND extract(epoch FROM l.last_seen_at - l.dead_at) * 1000000 <= s.most_lag, false)),
  (SELECT count(*) FROM recourse.facet_groups s WHERE (s.letters, s.attempts) <> (SELECT count(*), coalesce(sum(attempts), 0) FROM recourse.letters WHERE facet_group = s.id))
FROM recourse.facet_groups s LEFT JOIN recourse.letters l ON l.facet_group = s.id`).Scan(&letters, &outside, &miscounted); err != nil {
			t.Fatal(err)
		}
		if letters < 50 || outside > 0 || miscounted > 0 {
			t.Errorf("seed %d, %s: of %d letters %d are outside; %d groups have wrong counts", seed, change, letters, outside, miscounted)
		}
	}
}
