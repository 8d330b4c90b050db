package search_test

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/search"
)

type sums struct{ letters, risk, attempts int64 }

func (l testLetter) risk() int64 {
	if l.status == "open" {
		return l.amount
	}
	return 0
}

// signature is the message without its number.
func (l testLetter) signature() string {
	if l.whole {
		return l.message
	}
	return "account \x01 closed"
}

// Counts, sums, groups and histograms are those of a scan over all letters.
func TestAnalysisAgreesWithAScan(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), testkit.Migrated(t)
	index, db := openIndex(t, url, journaltest.Open(t, url)), testkit.OpenAsOwner(t, url)
	seed := time.Now().UnixNano()
	d := rand.New(rand.NewPCG(uint64(seed), 2))
	letters := randomLetters(d, 500)
	insertLetters(t, db, letters)
	for _, q := range []string{
		`UPDATE recourse.facet_groups SET signature = constant`,
		`UPDATE recourse.letters l SET at_risk = amount FROM recourse.facet_groups s WHERE s.id = l.facet_group AND s.status = 'open'`,
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	edges := []time.Time{died.Add(20 * time.Minute), died.Add(50 * time.Minute), died.Add(90 * time.Minute), died.Add(3 * time.Hour)}
	groups := 0
	for range 150 {
		f, selects := randomFilter(d)
		want, deaths, opened := map[string]sums{}, make([]int64, len(edges)-1), make([]int64, len(edges)-1)
		byCause := map[string][]testLetter{}
		for _, l := range letters {
			if !selects(l) {
				continue
			}
			key := l.status + " " + l.queue + " " + l.currency
			want[key] = sums{want[key].letters + 1, want[key].risk + l.risk(), want[key].attempts + int64(l.attempts)}
			byCause[l.signature()] = append(byCause[l.signature()], l)
			for i := range deaths {
				if l.dead.Before(edges[i]) || !l.dead.Before(edges[i+1]) {
					continue
				}
				if deaths[i]++; l.status == "open" {
					opened[i]++
				}
			}
		}
		times, open := &search.DeathHistogram{Edges: edges}, &search.DeathHistogram{OpenOnly: true, Edges: edges}
		tallies, err := index.Tally(ctx, "acme", f, times, open)
		if err != nil {
			t.Fatalf("seed %d, %+v: %v", seed, f, err)
		}
		got := map[string]sums{}
		for _, l := range tallies {
			key := l.Status + " " + l.Queue + " " + l.Currency
			risk, _ := l.AtRisk.Minor()
			got[key] = sums{got[key].letters + l.Letters, got[key].risk + risk, got[key].attempts + l.Attempts}
		}
		if !maps.Equal(got, want) || !slices.Equal(times.Counts, deaths) || !slices.Equal(open.Counts, opened) {
			t.Fatalf("seed %d, %+v:\n%v, want\n%v; by time %v, want %v", seed, f, got, want, times.Counts, deaths)
		}
		for _, o := range []search.GroupOrder{search.BySize, search.ByNewest, search.BySignature} {
			groups += checkGroups(t, index, f, o, byCause, seed)
		}
		checkLargest(t, index, f, len(byCause))
	}
	if groups < 300 {
		t.Errorf("only %d groups compared", groups)
	}
}

func checkGroups(t *testing.T, index *search.Index, f search.Filter, o search.GroupOrder, want map[string][]testLetter, seed int64) int {
	t.Helper()
	var got []search.Group
	for after := (search.GroupCursor{}); ; {
		page, all, last, more, err := index.Groups(context.Background(), "acme", f, o, after, 2)
		if err != nil || all != len(want) {
			t.Fatalf("seed %d, %s, %+v: %d groups, want %d, %v", seed, o, f, all, len(want), err)
		}
		got, after = append(got, page...), last
		if !more {
			break
		}
	}
	if len(got) != len(want) {
		t.Fatalf("seed %d, %s, %+v: %d groups on the pages, want %d", seed, o, f, len(got), len(want))
	}
	for i, g := range got {
		letters := slices.SortedFunc(slices.Values(want[g.Signature]), func(a, b testLetter) int {
			return cmp.Or(a.dead.Compare(b.dead), slices.Compare(a.run[:], b.run[:]))
		})
		newest := letters[len(letters)-1]
		if g.Letters != int64(len(letters)) || !g.First.Equal(letters[0].dead) || !g.Last.Equal(newest.dead) || uuid.UUID(g.Sample) != newest.run {
			t.Fatalf("seed %d, %s, %+v: %+v; want %d letters from %v to %v, the newest %v", seed, o, f, g, len(letters), letters[0].dead, newest.dead, newest.run)
		}
		if i == 0 {
			continue
		}
		before := got[i-1]
		ordered := map[search.GroupOrder]bool{
			search.BySize:      before.Letters > g.Letters || before.Letters == g.Letters && before.Signature < g.Signature,
			search.ByNewest:    before.Last.After(g.Last) || before.Last.Equal(g.Last) && before.Signature < g.Signature,
			search.BySignature: before.Signature < g.Signature,
		}
		if !ordered[o] {
			t.Fatalf("seed %d, %s: %q comes before %q", seed, o, before.Signature, g.Signature)
		}
	}
	return len(got)
}

// checkLargest compares the largest groups of an analysis with the first of the listed
// groups.
func checkLargest(t *testing.T, index *search.Index, f search.Filter, all int) {
	t.Helper()
	analysis, err := index.Analyze(context.Background(), "acme", f, 2)
	if err != nil || analysis.SignatureCount != all {
		t.Fatalf("%+v: %d signatures, want %d, %v", f, analysis.SignatureCount, all, err)
	}
	listed, _, _, _, err := index.Groups(context.Background(), "acme", f, search.BySize, search.GroupCursor{}, 2)
	if err != nil || len(listed) != len(analysis.Largest) {
		t.Fatalf("%+v: %d groups, want %d, %v", f, len(analysis.Largest), len(listed), err)
	}
	for i, g := range analysis.Largest {
		if w := listed[i]; g.Signature != w.Signature || g.Letters != w.Letters || !g.First.Equal(w.First) || !g.Last.Equal(w.Last) || g.Sample != w.Sample {
			t.Fatalf("%+v: %+v is among the largest, want %+v", f, g, w)
		}
	}
}
