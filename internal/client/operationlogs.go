package client

import (
	"context"

	"github.com/recourse-dev/recourse/postadjudication"
)

// OperationLogs are the requests about the logs of keys, plans, webhooks and refusals.
type OperationLogs struct{ *connection }

// historyPaths are the paths of the logs.
var historyPaths = map[postadjudication.OperationLog]string{
	postadjudication.OperationLogKeys: "/keys/history", postadjudication.OperationLogRefusals: "/access/history", postadjudication.OperationLogBulks: "/bulk/history",
	postadjudication.OperationLogWebhooks: "/webhooks/history",
}

// History returns the entries of a log after sequence number after.
func (r OperationLogs) History(ctx context.Context, of postadjudication.OperationLog, after int64, limit int) ([]postadjudication.OperationLogEntry, error) {
	var out struct {
		Entries []postadjudication.OperationLogEntry `json:"entries"`
	}
	err := r.get(ctx, historyPaths[of], versionsQuery(after, limit), &out)
	return out.Entries, err
}
