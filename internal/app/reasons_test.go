package app

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/recourse-dev/recourse/postadjudication"
)

func TestReasonsAreGivenOnceAndNameNoServer(t *testing.T) {
	t.Parallel()
	dialled := errors.New("dial tcp 10.1.2.3:5432: connection refused")
	unready := func(reason string) error { return &postadjudication.Unready{Reason: reason, Err: dialled} }
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"ready":               {nil, nil},
		"one":                 {unready("a"), []string{"a"}},
		"several, one twice":  {errors.Join(errors.Join(unready("a"), unready("b")), unready("a")), []string{"a", "b"}},
		"none that is known":  {dialled, []string{"see the log"}},
		"beside one that is":  {errors.Join(unready("a"), fmt.Errorf("listening: %w", dialled)), []string{"a", "see the log"}},
		"of several causes":   {&postadjudication.Unready{Reason: "a", Err: fmt.Errorf("%w: %w", dialled, dialled)}, []string{"a"}},
		"joined within a few": {fmt.Errorf("%w: %w", unready("b"), dialled), []string{"b", "see the log"}},
	} {
		if got := reasons(tc.err); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
