package escrow

import (
	"regexp"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
)

// RemotePrefix begins the name of a target whose calls remote workers make. The rest of the name
// is the queue from which they fetch them: "queue:payouts".
const RemotePrefix = binding.RemotePrefix

// maxRemoteQueue is what MaxTarget leaves for the queue.
const maxRemoteQueue = MaxTarget - len(RemotePrefix)

// MaxTarget bounds the name of a target, in bytes.
const MaxTarget = 64

// remoteQueuePattern is that of queues in Open Job Spec, whose clients fetch from them.
var remoteQueuePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

// IsRemote reports whether remote workers make the calls of a target.
func IsRemote(target string) bool { return strings.HasPrefix(target, RemotePrefix) }

// RemoteQueue returns the queue of a remote target. valid is false if the name can't be that of a
// queue: lower-case letters, digits, dashes and dots, at most 58 bytes, a letter or digit first.
func RemoteQueue(target string) (queue string, valid bool) {
	queue, remote := strings.CutPrefix(target, RemotePrefix)
	return queue, remote && len(queue) <= maxRemoteQueue && remoteQueuePattern.MatchString(queue)
}
