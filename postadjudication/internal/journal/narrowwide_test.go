package journal

import (
	"errors"
	"testing"

	"github.com/lib/pq"
	"pgregory.net/rapid"
)

// Each row gets its own answer: that of the wide statement if the narrow one refused the
// row or the batch, else that of the narrow one.
func TestEachRowOfABatchGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "rows")
		rows, number := make([]*chainedChange, n), map[*chainedChange]int{}
		may, open := make([]bool, n), make([]bool, n)
		for i := range rows {
			rows[i] = &chainedChange{Change: &Change{}}
			number[rows[i]] = i
			may[i], open[i] = rapid.Bool().Draw(t, "may"), rapid.Bool().Draw(t, "open")
		}
		refusal := rapid.SampledFrom([]error{nil, &pq.Error{Code: "23505"}, &pq.Error{Code: "40P01"}, errors.New("gone")}).Draw(t, "refusal")
		answers := func(of int, err error) func([]*chainedChange) ([]int, error) {
			return func(asked []*chainedChange) ([]int, error) {
				out := make([]int, len(asked))
				for i, r := range asked {
					out[i] = of + number[r]
				}
				return out, err
			}
		}
		got := narrowThenWide(rows, func(r *chainedChange) bool { return may[number[r]] }, answers(100, refusal),
			func(r *chainedChange, _ int) bool { return open[number[r]] }, answers(200, nil))
		for i, a := range got {
			lostAll := may[i] && refusal != nil && refusal.Error() == "gone"
			want := 200 + i
			if may[i] && !open[i] && refusal == nil {
				want = 100 + i
			}
			if lostAll != (a.Err != nil) || !lostAll && a.Value != want {
				t.Fatalf("row %d: %d, %v; want %d", i, a.Value, a.Err, want)
			}
		}
	})
}
