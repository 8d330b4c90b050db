package background

import (
	"strconv"
	"strings"
	"sync"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"
)

// formerQueues serves the queues of shards that are configured no more, and that due runs
// of this manager's families still name: else those would wait for ever after a restart
// with fewer shards. A queue is served from when the sweeper meets the first such run
// until the manager ends. Other processes may serve it, too.
type formerQueues struct {
	m *Manager

	mu      sync.Mutex
	servers map[string]*asynq.Server // by queue
	stopped bool
}

// serve serves the queue of a due run if nobody else of this process does.
func (f *formerQueues) serve(r Run) {
	shard, ok := strings.CutPrefix(r.Queue, r.Family+":")
	if n, err := strconv.Atoi(shard); !ok || err != nil || n < f.m.cfg.Shards || f.m.families[r.Family] == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.servers[r.Queue] != nil {
		return
	}
	s := asynq.NewServerFromRedisClient(f.m.redis, f.m.serverConfig(map[string]int{r.Queue: 1}))
	if err := s.Start(asynq.HandlerFunc(f.m.process)); err != nil {
		f.m.log.Error("a queue that is configured no more can't be served; the next sweep tries again", zap.String("queue", r.Queue), zap.Error(err))
		return
	}
	f.servers[r.Queue] = s
	f.m.log.Info("runs wait in a queue that is configured no more; it is served", zap.String("queue", r.Queue))
}

// addTo adds the queues to others, and returns these.
func (f *formerQueues) addTo(queues map[string]int) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for queue := range f.servers {
		queues[queue] = 1
	}
	return queues
}

// stop returns the servers, for the caller to shut down. No queue is served any more.
func (f *formerQueues) stop() (servers []*asynq.Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopped = true
	for _, s := range f.servers {
		servers = append(servers, s)
	}
	return servers
}
