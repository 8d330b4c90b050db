package background

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"
)

// Queue returns the asynq queue for the notifications of runs with this retry key:
// "<family>:<shard>". The shard is a stable hash of the retry key. The queue is stored with the
// run, so the number of shards may change later: queues that are no longer configured are
// served while live runs name them.
func (m *Manager) Queue(family, retryKey string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(retryKey)) // never fails, says hash.Hash
	return queueName(family, int(h.Sum32()%uint32(m.cfg.Shards)))
}

// Queues returns the queues of a family, by shard.
func (m *Manager) Queues(family string) []string {
	all := make([]string, m.cfg.Shards)
	for shard := range all {
		all[shard] = queueName(family, shard)
	}
	return all
}

func queueName(family string, shard int) string { return family + ":" + strconv.Itoa(shard) }

// taskKey is the key of a task in asynq: a hash with the task's state in field "state".
func taskKey(queue, taskID string) string { return queueKey(queue, "t:"+taskID) }

// queueKey is the key of a part of a queue in asynq: the list "pending", and the sets "retry",
// "scheduled" and "archived", ordered by time.
func queueKey(queue, part string) string { return fmt.Sprintf("asynq:{%s}:%s", queue, part) }

// validFamily reports whether a name can be part of queue names and Redis keys.
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

// queueSet lists the queues that this manager serves: those of its shards, and former queues,
// which have no shard any more but are named by due runs of its families. Without serving those,
// such runs would wait for ever after a restart with fewer shards. A former queue is served from
// the first such run that the sweeper reads until the manager ends. Other processes may serve it
// too.
type queueSet struct {
	m *Manager

	mu      sync.Mutex
	servers map[string]*asynq.Server // by queue
	stopped bool
}

// configured returns the queues of this manager's shards, all with weight 1.
func (f *queueSet) configured() map[string]int {
	all := make(map[string]int, len(f.m.families)*f.m.cfg.Shards)
	for name := range f.m.families {
		for shard := range f.m.cfg.Shards {
			all[queueName(name, shard)] = 1
		}
	}
	return all
}

// served returns the queues that this manager serves, sorted.
func (f *queueSet) served() []string {
	return slices.Sorted(maps.Keys(f.addFormer(f.configured())))
}

// serve starts to serve the queue of a due run unless this process serves it already.
func (f *queueSet) serve(r Run) {
	shard, ok := strings.CutPrefix(r.Queue, r.Family+":")
	if n, err := strconv.Atoi(shard); !ok || err != nil || n < f.m.cfg.Shards || f.m.families[r.Family] == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.servers[r.Queue] != nil {
		return
	}
	s := asynq.NewServerFromRedisClient(f.m.redis, f.m.consumer.serverConfig(map[string]int{r.Queue: 1}))
	if err := s.Start(asynq.HandlerFunc(f.m.consumer.process)); err != nil {
		f.m.log.Error("former queue cannot be served, the next sweep retries", zap.String("queue", r.Queue), zap.Error(err))
		return
	}
	f.servers[r.Queue] = s
	f.m.log.Info("serving a former queue", zap.String("queue", r.Queue))
}

// addFormer adds the former queues to queues and returns it.
func (f *queueSet) addFormer(queues map[string]int) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for queue := range f.servers {
		queues[queue] = 1
	}
	return queues
}

// stop returns the servers, for the caller to shut down. No further queue is served.
func (f *queueSet) stop() (servers []*asynq.Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	for _, s := range f.servers {
		servers = append(servers, s)
	}
	return servers
}
