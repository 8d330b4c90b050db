package backgroundtest

import (
	"context"

	"github.com/recourse-dev/recourse/background"
)

// RunStatuses implements background.ArchiveStore.
func (j *Journal) RunStatuses(_ context.Context, ids []background.RunID) ([]background.Run, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down != nil {
		return nil, j.down
	}
	var out []background.Run
	for _, id := range ids {
		if r, ok := j.runs[id]; ok {
			out = append(out, r)
		}
	}
	return out, nil
}
