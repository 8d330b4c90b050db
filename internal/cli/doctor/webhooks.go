package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/postadjudication"
)

// checkWebhooks finds webhooks to which nothing is sent, or that accept nothing.
func checkWebhooks(ctx context.Context, service *postadjudication.Service) Check {
	const name = "webhooks"
	found, err := service.Health().Webhooks(ctx)
	if err != nil {
		return wrong(name, err.Error(), "see the other checks of Postgres")
	}
	var problems []string
	if found.Paused > 0 {
		problems = append(problems, fmt.Sprintf("%d paused, by a person or by themselves", found.Paused))
	}
	if found.FailsForLong(time.Now()) {
		problems = append(problems, fmt.Sprintf("%d failing, the longest since %s", found.FailingActive, found.FailingSince.UTC().Format(time.RFC3339)))
	}
	if len(problems) > 0 {
		return hint(name, strings.Join(problems, "; "), "recourse webhook list --tenant NAME says why; recourse webhook resume continues, and skips nothing")
	}
	return fine(name, fmt.Sprintf("%d, of which none is paused or fails for long", found.Active))
}
