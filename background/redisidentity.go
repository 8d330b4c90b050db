package background

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// ErrUnsuitableRedis means that the Redis is one that this process must not work with. The error
// says in one line why, and what to do.
var ErrUnsuitableRedis = errors.New("unsuitable Redis")

// ErrOtherDatabase means that another ledger stands in the place of the one that this process began
// with. Config.Barred says so. The process makes itself known to that one no more, and recovers
// nothing of it: whom its executors ask may know nothing of its runs.
var ErrOtherDatabase = errors.New("it is another database")

var errRedisCluster = fmt.Errorf("%w: it is a Cluster, of which a redis:// URL reaches one node: name it as redis-cluster://host:6379", ErrUnsuitableRedis)

// ownerKey holds the identity of the database whose notifications a Redis carries.
const ownerKey = "recourse:database"

// takeoverDelay is for how long a Redis that belonged to another database must belong to none
// before it is taken: emptied, it is its owner's again within a sweep. It is also for how
// long processes may name different Redis: one that was emptied or failed over is seen by
// each at another time.
func (o *redisOwner) takeoverDelay() time.Duration { return o.m.cfg.LostAfter * 2 / 3 }

// redisOwner knows whether the Redis is that of this database, and the one that the other
// processes use. Notifications that go to another Redis are heard by nobody there, and
// each sweeper would notify what the other one has; those of another database are for
// runs that are not known here.
//
// A Redis that forgot everything is nobody's, and taken again: that is a fault to be
// healed. One that names another database is refused, and so is the younger of two
// processes that use two, unless the older one is barred itself.
type redisOwner struct {
	m *Manager

	mu            sync.Mutex
	foreignErr    error
	owned         bool // it was ours when it was last seen with an owner
	otherRedisErr error
	clusterErr    error
	marker        string // of the Redis, as last seen; empty when it could not be asked

	// Of the sweeping goroutine alone:
	vacantSince time.Time // since when nobody owns a Redis that was not ours

	// Of the observing goroutine alone:
	differsSince time.Time // since when an older process names another Redis
}

// err says why nothing may be claimed with this Redis.
func (o *redisOwner) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return unready("this Redis may not be worked with", errors.Join(o.clusterErr, o.foreignErr, o.otherRedisErr))
}

// vacantSweeps is for how many sweeps a Redis that was nobody's when it was first seen is
// left to whoever may own it: one that was emptied is its owner's again within a sweep.
const vacantSweeps = 3

// readOwner adds to a pipeline what saw reads. A Redis that was ours is taken again at once when
// it has no owner; any other is not.
func (o *redisOwner) readOwner(ctx context.Context, pipe redis.Pipeliner) *redis.StringCmd {
	if o.m.cfg.Database == "" {
		return nil
	}
	o.mu.Lock()
	owned, wait := o.owned, o.takeoverDelay()
	if o.foreignErr == nil {
		wait = vacantSweeps * o.m.cfg.SweepEvery
	}
	o.mu.Unlock()
	if owned || !o.vacantSince.IsZero() && time.Since(o.vacantSince) >= wait {
		pipe.SetNX(ctx, ownerKey, o.m.cfg.Database, 0)
	}
	return pipe.Get(ctx, ownerKey)
}

// observe takes in what a sweep read: the marker, and whose Redis it is. err is that of the
// pipeline.
func (o *redisOwner) observe(marker string, owner *redis.StringCmd, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.foreignErr
	o.marker = marker
	if o.clusterErr = nil; o.m.nodes == nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		o.clusterErr = errRedisCluster
	}
	if owner == nil || err != nil {
		return
	}
	switch database := owner.Val(); {
	case database == "":
		if o.vacantSince.IsZero() {
			o.vacantSince = time.Now()
		}
		return
	case database == o.m.cfg.Database:
		o.foreignErr, o.owned = nil, true
	default:
		o.foreignErr, o.owned = foreignRedisError(database), false
	}
	o.vacantSince = time.Time{}
	if was == nil && o.foreignErr != nil {
		o.m.log.Error("nothing is claimed", zap.Error(o.foreignErr))
	}
}

func foreignRedisError(database string) error {
	return fmt.Errorf("%w: it carries the notifications of another database (%s): name another Redis, or another logical database of it; when that database is gone: redis-cli DEL %s", ErrUnsuitableRedis, database, ownerKey)
}

// sessionMarker is what the session of this process shows of its Redis: the marker in it, as last
// seen. A process that is about to end notifies nobody, and keeps none from another Redis.
func (o *redisOwner) sessionMarker() string {
	select {
	case <-o.m.stop:
		return ""
	default:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.marker
}

// compare looks which Redis the sessions of other live processes name.
func (o *redisOwner) compare(sessions []Session, ownID SessionID, beats func(Session) bool) {
	o.mu.Lock()
	marker := o.marker
	o.mu.Unlock()
	other, found := olderWithOtherRedis(sessions, ownID, marker, beats)
	if !found {
		o.differsSince = time.Time{}
	} else if o.differsSince.IsZero() {
		o.differsSince = time.Now()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.otherRedisErr
	if o.otherRedisErr = nil; found && time.Since(o.differsSince) >= o.takeoverDelay() {
		o.otherRedisErr = otherRedisError(other.Worker)
	}
	if was == nil && o.otherRedisErr != nil {
		o.m.log.Error("nothing is claimed", zap.Error(o.otherRedisErr))
	}
}

func otherRedisError(worker string) error {
	return fmt.Errorf("%w: %s, which works on this database, uses another one: name the same Redis, and the same logical database of it, for all", ErrUnsuitableRedis, worker)
}

// redisCounts reports whether others go by what a session says of its Redis. One that claims
// nothing for its servers or its clock bars nobody.
func (s *Session) redisCounts() bool {
	return !s.Lost && s.ClaimsBlockedBy != BlockedByServers && s.ClaimsBlockedBy != BlockedByClock
}

// olderWithOtherRedis finds a live session that began before the own one and names another Redis.
func olderWithOtherRedis(sessions []Session, ownID SessionID, marker string, beats func(Session) bool) (Session, bool) {
	var own Session
	for _, s := range sessions {
		if s.ID == ownID {
			own = s
		}
	}
	for _, s := range sessions {
		earlier := s.StartedAt.Before(own.StartedAt) || s.StartedAt.Equal(own.StartedAt) && strings.Compare(s.ID.String(), own.ID.String()) < 0
		if marker != "" && s.Redis != "" && s.Redis != marker && s.redisCounts() && own.ID != (SessionID{}) && earlier && beats(s) {
			return s, true
		}
	}
	return Session{}, false
}

// CheckRedis is nil when this process may work with its Redis, and also when that can't be
// reached: that is no reason not to start. When take is true it marks a Redis that has no
// marker; whose it is, only the sweeper of a process that runs says. The error wraps ErrUnsuitableRedis.
func (m *Manager) CheckRedis(ctx context.Context, setMarker bool) error {
	marker, err := m.readRedisInTime(ctx, setMarker)
	if errors.Is(err, ErrUnsuitableRedis) {
		return err
	}
	if err != nil {
		return nil // it can't be reached; readiness says so
	}
	return m.checkOtherProcesses(ctx, marker, setMarker)
}

// readRedisTimeout is for how long the start of a process waits for a Redis. The client goes by
// time-outs of its own, and tries again.
const readRedisTimeout = 2 * time.Second

// readRedisInTime reads the marker of a Redis that is this database's own, or nobody's.
func (m *Manager) readRedisInTime(ctx context.Context, setMarker bool) (string, error) {
	type answer struct {
		marker string
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		marker, err := m.readRedis(ctx, setMarker)
		answers <- answer{marker, err}
	}()
	limit := time.NewTimer(readRedisTimeout)
	defer limit.Stop()
	select {
	case a := <-answers:
		return a.marker, a.err
	case <-limit.C:
		return "", context.DeadlineExceeded
	}
}

func (m *Manager) readRedis(ctx context.Context, setMarker bool) (marker string, err error) {
	pipe := m.redis.Pipeline()
	if setMarker {
		pipe.SetNX(ctx, markerKey, m.cfg.NewID().String(), 0) // its owner takes it once it runs
	}
	seen, owner, about := pipe.Get(ctx, markerKey), pipe.Get(ctx, ownerKey), pipe.Info(ctx, "cluster")
	_, err = pipe.Exec(ctx)
	switch {
	case m.nodes == nil && redis.HasErrorPrefix(err, "MOVED"), m.nodes == nil && strings.Contains(about.Val(), "cluster_enabled:1"):
		return "", errRedisCluster
	case err != nil && ignoreInfoRefused(err, about, seen, owner) != nil && !errors.Is(err, redis.Nil):
		return "", err
	case m.cfg.Database != "" && owner.Val() != "" && owner.Val() != m.cfg.Database:
		return "", foreignRedisError(owner.Val())
	}
	return seen.Val(), nil
}

// checkOtherProcesses is an error when a process that lives uses another Redis. What a session
// names may be old: it counts only when its counter rose meanwhile, and then it was given
// the time to see what became of its Redis.
func (m *Manager) checkOtherProcesses(ctx context.Context, marker string, setMarker bool) error {
	first := map[SessionID]int64{}
	for began := time.Now(); ; {
		sessions, err := m.cfg.Store.Sessions(ctx)
		if err != nil {
			return err
		}
		var others []Session
		for _, s := range sessions {
			if s.Redis == "" || !s.redisCounts() || s.Redis == marker {
				continue
			}
			if _, known := first[s.ID]; !known {
				first[s.ID] = s.Beat
			}
			others = append(others, s)
		}
		if len(others) == 0 {
			return nil
		}
		if time.Since(began) >= 4*m.cfg.BeatEvery+2*m.cfg.SweepEvery {
			for _, s := range others {
				if s.Beat > first[s.ID] {
					return otherRedisError(s.Worker)
				}
			}
			return nil
		}
		if !sleep(ctx, m.cfg.BeatEvery/2) {
			return ctx.Err()
		}
		if marker, err = m.readRedisInTime(ctx, setMarker); errors.Is(err, ErrUnsuitableRedis) {
			return err
		} else if err != nil {
			return nil // it went away meanwhile
		}
	}
}

const (
	// markerKey holds a random value for as long as Redis keeps its memory.
	markerKey = "recourse:marker"
	// queuesKey is where asynq lists its queues. A client adds a queue once and then
	// believes that it is there; without it nobody can promote or inspect a task.
	queuesKey = "asynq:queues"
)

// checkGeneration reports whether Redis may have lost what it held since the last
// look: the marker is gone or another, or was never seen by this process, or the
// server was started anew.
func (s *sweeper) checkGeneration(ctx context.Context) (dataLost bool, err error) {
	fresh := s.m.cfg.NewID().String()
	queues := make([]any, 0)
	for _, name := range s.m.servedQueues() {
		queues = append(queues, name)
	}
	pipe := s.m.redis.Pipeline()
	set := pipe.SetNX(ctx, markerKey, fresh, 0)
	seen, server := s.m.readGeneration(ctx, pipe)
	listed := pipe.SAdd(ctx, queuesKey, queues...)
	owner := s.m.redisOwner.readOwner(ctx, pipe)
	_, err = pipe.Exec(ctx)
	if owner != nil && errors.Is(owner.Err(), redis.Nil) && errors.Is(err, redis.Nil) {
		err = nil // it is nobody's
	}
	err = ignoreInfoRefused(err, server, set, seen, listed)
	s.m.redisOwner.observe(seen.Val(), owner, err)
	if err != nil {
		return false, fmt.Errorf("background: look at the marker in Redis: %w", err)
	}
	value := redisGeneration(seen, server)
	dataLost, s.generation = value != s.generation, value
	return dataLost, nil
}

// sameGeneration reports whether Redis has kept its memory since the look before the sweep.
func (s *sweeper) sameGeneration(ctx context.Context) (bool, error) {
	pipe := s.m.redis.Pipeline()
	seen, server := s.m.readGeneration(ctx, pipe)
	_, err := pipe.Exec(ctx)
	if err := ignoreInfoRefused(err, server); err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("background: look at the marker in Redis again: %w", err)
	}
	return redisGeneration(seen, server) == s.generation, nil
}

// ignoreInfoRefused is the error of a pipeline, but for that a server may refuse to tell of itself.
// go-redis sets it on no command when it can't dial.
func ignoreInfoRefused(err error, server *redis.StringCmd, others ...redis.Cmder) error {
	for _, c := range others {
		if err := c.Err(); err != nil {
			return err
		}
	}
	var refusal redis.Error
	if errors.As(server.Err(), &refusal) {
		return nil
	}
	return err
}

// readGeneration asks for what memory needs. Of a Cluster it is the masters that may have
// lost something, each by itself.
func (m *Manager) readGeneration(ctx context.Context, pipe redis.Pipeliner) (marker, server *redis.StringCmd) {
	if m.nodes != nil {
		return pipe.Get(ctx, markerKey), masterRunIDs(ctx, m.nodes)
	}
	return pipe.Get(ctx, markerKey), pipe.Info(ctx, "server")
}

// masterRunIDs is what the servers of a Cluster that hold something tell of themselves.
func masterRunIDs(ctx context.Context, cluster *redis.ClusterClient) *redis.StringCmd {
	var mu sync.Mutex
	var runs []string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "server").Result()
		mu.Lock()
		defer mu.Unlock()
		runs = append(runs, serverRunID(info))
		return err
	})
	slices.Sort(runs)
	cmd := redis.NewStringCmd(ctx)
	cmd.SetVal("\nrun_id:" + strings.Join(runs, "+"))
	cmd.SetErr(err)
	return cmd
}

// serverRunID is the id of the run of a server, of what it tells of itself.
func serverRunID(info string) string {
	_, after, _ := strings.Cut(info, "\nrun_id:")
	run, _, _ := strings.Cut(after, "\r")
	return run
}

// redisGeneration names what Redis remembers: as long as it is the same, what was there and is
// gone was removed. A server that was started anew, or another that took over, may
// remember an older time, the marker included.
func redisGeneration(marker, server *redis.StringCmd) string {
	return marker.Val() + " " + serverRunID(server.Val())
}
