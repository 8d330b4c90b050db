package postadjudication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
)

// hangingPut is an archive that takes a file for ever.
type hangingPut struct{ Archive }

func (hangingPut) Put(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// A purge ends after too many failures in a row, and at an archive that does not answer.
func TestWhenAPurgeEnds(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		tries []error
		ends  bool
	}{
		"it all works":                    {make([]error, 100), false},
		"a failing letter among others":   {[]error{errItem, errItem, nil, errItem, nil}, false},
		"failures in a row, and then not": {append(slices.Repeat([]error{errItem}, tenantFailureLimit-1), nil, errItem), false},
		"too many failures in a row":      {slices.Repeat([]error{errItem}, tenantFailureLimit), true},
		"an archive that does not answer": {[]error{nil, fmt.Errorf("put: %w", errArchiveTimeout)}, true},
	} {
		var f purgeFailures
		for n, err := range c.tries {
			if goesOn := f.tried(1, err); goesOn == (c.ends && n == len(c.tries)-1) {
				t.Errorf("%s: after try %d it goes on: %v", what, n+1, goesOn)
			}
		}
		if (f.err != nil) != c.ends {
			t.Errorf("%s: %v", what, f.err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		hanging := letterArchive{archive: hangingPut{}}
		if _, _, err := hanging.Put(t.Context(), make([]journal.LetterRow, 1), time.Now()); !errors.Is(err, errArchiveTimeout) {
			t.Errorf("%v", err)
		}
	})
}
