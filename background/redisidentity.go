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

// ErrUnsuitableRedis means that this process must not work with the Redis. The error states in
// one line the reason and the remedy.
var ErrUnsuitableRedis = errors.New("unsuitable Redis")

// ErrOtherDatabase means that the journal is in another database than the one that this process
// started with. Config.ClaimsBlocked returns it. The process registers no session there and
// recovers nothing: the services that its handlers call may not know those runs. A submission inside
// a caller's transaction returns it where the transaction belongs to another database.
var ErrOtherDatabase = errors.New("it is another database")

var errRedisCluster = fmt.Errorf("%w: it is a Cluster, and a redis:// URL reaches one node of it: use redis-cluster://host:6379", ErrUnsuitableRedis)

// ownerKey holds the identity of the database whose notifications a Redis carries.
const ownerKey = "recourse:database"

// takeoverDelay is how long a Redis that belonged to another database must have no owner before
// this process takes it: if it was emptied, its owner takes it again within a sweep. It is also
// how long processes may name different Redis servers: each sees at another time that one was
// emptied or failed over.
func (o *redisOwner) takeoverDelay() time.Duration { return o.m.cfg.LostAfter * 2 / 3 }

// redisOwner checks that the Redis belongs to this database and is the one that the other
// processes use. Notifications sent to another Redis reach none of them, and each sweeper would
// resend what the other one has. Notifications of another database name runs that do not exist
// here.
//
// A Redis that lost its data has no owner and is taken again, to repair the fault. A Redis that
// names another database is refused. Of two processes that use two Redis servers, the younger
// is refused, unless the older one is blocked itself.
type redisOwner struct {
	m     *Manager
	redis redis.UniversalClient
	nodes *redis.ClusterClient // nil unless Redis is a Cluster

	mu            sync.Mutex
	foreignErr    error
	owned         bool // it belonged to this database when an owner was last seen
	otherRedisErr error
	clusterErr    error
	marker        string // of the Redis, as last seen; empty when it could not be read

	// Used by the sweeping goroutine only:
	vacantSince time.Time // since when a Redis that was not ours has no owner

	// Used by the recoverer's goroutine only:
	differsSince time.Time // since when an older process names another Redis
}

// err returns why nothing may be claimed with this Redis, or nil.
func (o *redisOwner) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return unready("this process must not work with its Redis", errors.Join(o.clusterErr, o.foreignErr, o.otherRedisErr))
}

// vacantSweeps is how many sweeps a Redis that had no owner when first seen stays untouched: if
// it was emptied, its owner takes it again within a sweep.
const vacantSweeps = 3

// readOwner adds to a pipeline what observe reads. It takes a Redis without owner: at once if
// it was ours, else after a delay.
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

// observe applies what a sweep read: the marker and the owner. err is the error of the
// pipeline.
func (o *redisOwner) observe(marker string, owner *redis.StringCmd, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.foreignErr
	o.marker = marker
	if o.clusterErr = nil; o.nodes == nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
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
		o.m.log.Error("claiming is blocked", zap.Error(o.foreignErr))
	}
}

func foreignRedisError(database string) error {
	return fmt.Errorf("%w: it carries the notifications of another database (%s): use another Redis or another logical database of it, or, if that database no longer exists, run redis-cli DEL %s", ErrUnsuitableRedis, database, ownerKey)
}

// sessionMarker returns the marker of the Redis as last seen, for the session of this process.
// It is empty once the process stops: it sends no notifications then, and must not block
// processes with another Redis.
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

// compare compares this Redis with those of the sessions of other live processes.
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
		o.m.log.Error("claiming is blocked", zap.Error(o.otherRedisErr))
	}
}

func otherRedisError(worker string) error {
	return fmt.Errorf("%w: worker %s uses another one for the same database: use the same Redis, and the same logical database of it, in all processes", ErrUnsuitableRedis, worker)
}

// redisCounts reports whether other processes compare their Redis with this session's. A
// session that is blocked by its servers or its clock does not count.
func (s *Session) redisCounts() bool {
	return !s.Lost && s.ClaimsBlockedBy != BlockedByServers && s.ClaimsBlockedBy != BlockedByClock
}

// olderWithOtherRedis returns a live session that began before this process's and names another
// Redis.
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

// CheckRedis returns an error that wraps ErrUnsuitableRedis when this process must not work
// with its Redis. It returns nil when Redis cannot be reached, because that must not prevent a
// start. When setMarker is true it sets the marker of a Redis that has none. Only the sweeper
// of a running process sets the owner.
func (m *Manager) CheckRedis(ctx context.Context, setMarker bool) error {
	marker, err := m.redisOwner.readInfoInTime(ctx, setMarker)
	if errors.Is(err, ErrUnsuitableRedis) {
		return err
	}
	if err != nil {
		return nil // Redis cannot be reached; readiness reports it
	}
	return m.redisOwner.checkOtherProcesses(ctx, marker, setMarker)
}

// readRedisTimeout bounds how long the start of a process waits for Redis. The client has
// time-outs of its own and retries.
const readRedisTimeout = 2 * time.Second

// readInfoInTime reads the marker of a Redis that belongs to this database or has no owner.
func (o *redisOwner) readInfoInTime(ctx context.Context, setMarker bool) (string, error) {
	type answer struct {
		marker string
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		marker, err := o.readInfo(ctx, setMarker)
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

func (o *redisOwner) readInfo(ctx context.Context, setMarker bool) (marker string, err error) {
	pipe := o.redis.Pipeline()
	if setMarker {
		pipe.SetNX(ctx, markerKey, o.m.cfg.NewID().String(), 0) // the sweeper sets the owner
	}
	seen, owner, about := pipe.Get(ctx, markerKey), pipe.Get(ctx, ownerKey), pipe.Info(ctx, "cluster")
	_, err = pipe.Exec(ctx)
	switch {
	case o.nodes == nil && redis.HasErrorPrefix(err, "MOVED"), o.nodes == nil && strings.Contains(about.Val(), "cluster_enabled:1"):
		return "", errRedisCluster
	case err != nil && ignoreInfoRefused(err, about, seen, owner) != nil && !errors.Is(err, redis.Nil):
		return "", err
	case o.m.cfg.Database != "" && owner.Val() != "" && owner.Val() != o.m.cfg.Database:
		return "", foreignRedisError(owner.Val())
	}
	return seen.Val(), nil
}

// checkOtherProcesses returns an error when another live process uses another Redis. What a
// session names may be old. It counts only if the session's counter rose meanwhile, and after
// the time that its process needs to see a change of its Redis.
func (o *redisOwner) checkOtherProcesses(ctx context.Context, marker string, setMarker bool) error {
	first := map[SessionID]int64{}
	for began := time.Now(); ; {
		sessions, err := o.m.cfg.Store.Sessions(ctx)
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
		if time.Since(began) >= 4*o.m.cfg.BeatEvery+2*o.m.cfg.SweepEvery {
			for _, s := range others {
				if s.Beat > first[s.ID] {
					return otherRedisError(s.Worker)
				}
			}
			return nil
		}
		if !sleep(ctx, o.m.cfg.BeatEvery/2) {
			return ctx.Err()
		}
		if marker, err = o.readInfoInTime(ctx, setMarker); errors.Is(err, ErrUnsuitableRedis) {
			return err
		} else if err != nil {
			return nil // Redis cannot be reached any more
		}
	}
}

const (
	// markerKey holds a random value for as long as Redis keeps its data.
	markerKey = "recourse:marker"
	// queuesKey is where asynq lists its queues. A client adds a queue once and then assumes
	// that it is listed; tasks of an unlisted queue cannot be run or inspected.
	queuesKey = "asynq:queues"
)

// checkGeneration reports whether Redis may have lost data since the last check: the marker is
// missing or another, was never seen by this process, or the server was restarted.
func (s *sweeper) checkGeneration(ctx context.Context) (dataLost bool, err error) {
	fresh := s.m.cfg.NewID().String()
	queues := make([]any, 0)
	for _, name := range s.m.queues.served() {
		queues = append(queues, name)
	}
	pipe := s.m.redis.Pipeline()
	set := pipe.SetNX(ctx, markerKey, fresh, 0)
	seen, server := s.m.redisOwner.readGeneration(ctx, pipe)
	listed := pipe.SAdd(ctx, queuesKey, queues...)
	owner := s.m.redisOwner.readOwner(ctx, pipe)
	_, err = pipe.Exec(ctx)
	if owner != nil && errors.Is(owner.Err(), redis.Nil) && errors.Is(err, redis.Nil) {
		err = nil // it has no owner
	}
	err = ignoreInfoRefused(err, server, set, seen, listed)
	s.m.redisOwner.observe(seen.Val(), owner, err)
	if err != nil {
		return false, fmt.Errorf("background: read the Redis generation: %w", err)
	}
	value := redisGeneration(seen, server)
	dataLost, s.generation = value != s.generation, value
	return dataLost, nil
}

// sameGeneration reports whether Redis has kept its data since the check at the start of the
// sweep.
func (s *sweeper) sameGeneration(ctx context.Context) (bool, error) {
	pipe := s.m.redis.Pipeline()
	seen, server := s.m.redisOwner.readGeneration(ctx, pipe)
	_, err := pipe.Exec(ctx)
	if err := ignoreInfoRefused(err, server); err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("background: read the Redis generation again: %w", err)
	}
	return redisGeneration(seen, server) == s.generation, nil
}

// ignoreInfoRefused returns the error of a pipeline, or nil if the only failure is that the
// server refused INFO. go-redis sets the error on no command when it cannot dial.
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

// readGeneration reads what identifies the generation of Redis's data. For a Cluster it reads
// each master, because each can lose data by itself.
func (o *redisOwner) readGeneration(ctx context.Context, pipe redis.Pipeliner) (marker, server *redis.StringCmd) {
	if o.nodes != nil {
		return pipe.Get(ctx, markerKey), masterRunIDs(ctx, o.nodes)
	}
	return pipe.Get(ctx, markerKey), pipe.Info(ctx, "server")
}

// masterRunIDs returns the run ids of all masters of a Cluster, in the form of INFO.
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

// serverRunID returns the run id from a server's INFO.
func serverRunID(info string) string {
	_, after, _ := strings.Cut(info, "\nrun_id:")
	run, _, _ := strings.Cut(after, "\r")
	return run
}

// redisGeneration identifies the data of Redis: while it is the same, missing keys were removed
// by somebody. A server that was restarted, or another that took over, may have older data,
// including an older marker.
func redisGeneration(marker, server *redis.StringCmd) string {
	return marker.Val() + " " + serverRunID(server.Val())
}
