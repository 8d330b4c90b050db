package background

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
)

// Queue names the asynq queue in which the bells of a run with this retry key
// ring: "<family>:<shard>". The shard is a stable hash of the retry key. It is
// stored with the run, so that more or fewer shards may be configured later: the queues
// that are configured no more are served while live runs name them.
func (m *Manager) Queue(family, retryKey string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(retryKey)) // never fails, says hash.Hash
	return queueName(family, int(h.Sum32()%uint32(m.cfg.Shards)))
}

// Queues are the queues in which bells of a family's runs may ring, by shard.
func (m *Manager) Queues(family string) []string {
	all := make([]string, m.cfg.Shards)
	for shard := range all {
		all[shard] = queueName(family, shard)
	}
	return all
}

func queueName(family string, shard int) string { return family + ":" + strconv.Itoa(shard) }

// configuredQueues are the queues of this manager's shards, all of one weight.
func (m *Manager) configuredQueues() map[string]int {
	all := make(map[string]int, len(m.families)*m.cfg.Shards)
	for name := range m.families {
		for shard := range m.cfg.Shards {
			all[queueName(name, shard)] = 1
		}
	}
	return all
}

// servedQueues are the queues that this manager takes runs from, sorted.
func (m *Manager) servedQueues() []string {
	return slices.Sorted(maps.Keys(m.former.addTo(m.configuredQueues())))
}

// taskKey is where asynq keeps a task: a hash whose field "state" says where
// the task stands.
func taskKey(queue, taskID string) string { return queueKey(queue, "t:"+taskID) }

// queueKey is where asynq keeps what a queue has: the list of what is "pending", and
// by time what waits for a "retry", is "scheduled", or "archived".
func queueKey(queue, part string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, part) }

// A family's name becomes part of queue names and of Redis keys.
func validFamily(name string) bool {
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		default:
			return false
		}
	}
	return name != ""
}
