package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// The default ports.
const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

const redisURLForms = "use redis://host:6379/0, rediss://... with TLS, redis-sentinel://h1:26379,h2:26379/0?master=name, or redis-cluster://h1:6379,h2:6379"

var errRedisURL = optionError("the Redis URL can't be read; %s", redisURLForms)

// redisURL is a parsed Redis URL.
type redisURL struct {
	kind     string // redis, redis-sentinel or redis-cluster
	tls      bool
	addrs    []string // with ports
	user     string
	password string
	db       int
	query    url.Values
}

// ParseRedis parses the URL of a Redis, of its Sentinels, or of a Cluster. The error is ErrOptions
// and does not repeat the URL, which may contain a password.
func ParseRedis(text string) (asynq.RedisConnOpt, error) {
	u, err := parseRedisURL(text)
	if err != nil {
		return nil, err
	}
	switch u.kind {
	case "redis-sentinel":
		return u.sentinel()
	case "redis-cluster":
		return u.cluster()
	}
	return u.single()
}

// parseRedisURL replaces the hosts before it calls url.Parse, which refuses a list of hosts.
func parseRedisURL(text string) (*redisURL, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	plain := strings.Replace(scheme, "rediss", "redis", 1)
	port := redisPort
	switch plain {
	case "redis", "redis-cluster":
	case "redis-sentinel":
		port = sentinelPort
	default:
		return nil, errRedisURL
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	at := strings.LastIndex(rest[:end], "@") + 1
	u, err := url.Parse("redis://" + rest[:at] + "host" + rest[end:])
	if err != nil {
		return nil, errRedisURL
	}
	out := &redisURL{kind: plain, tls: plain != scheme, user: u.User.Username()}
	out.password, _ = u.User.Password()
	if out.query, err = url.ParseQuery(u.RawQuery); err != nil {
		return nil, errRedisURL
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		if out.db, err = strconv.Atoi(path); err != nil || out.db < 0 {
			return nil, optionError("the database %q in the Redis URL is not a number; %s", path, redisURLForms)
		}
	}
	out.addrs, err = redisHosts(rest[at:end], port)
	return out, err
}

func redisHosts(list, defaultPort string) (addrs []string, err error) {
	for item := range strings.SplitSeq(list, ",") {
		host, port, err := net.SplitHostPort(item)
		if err != nil {
			host, port = strings.TrimSuffix(strings.TrimPrefix(item, "["), "]"), defaultPort
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" || strings.ContainsAny(host, "[]% ") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return nil, errRedisURL
		}
		addrs = append(addrs, net.JoinHostPort(host, port))
	}
	return addrs, nil
}

// tlsConfig returns the TLS configuration of the connections; nil without TLS.
func (u *redisURL) tlsConfig() *tls.Config {
	if !u.tls {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12} // the certificate is verified for the host that is dialled
}

// redisTimeouts are parameters that every kind of URL may have, named as in go-redis.
type redisTimeouts struct{ dial, read, write time.Duration }

// parameters returns the parameters of all kinds, and an error for any that is left: a parameter
// without effect would mislead the operator.
func (u *redisURL) parameters() (t redisTimeouts, err error) {
	for _, p := range []struct {
		name string
		to   *time.Duration
	}{{"dial_timeout", &t.dial}, {"read_timeout", &t.read}, {"write_timeout", &t.write}} {
		if text := u.take(p.name); text != "" {
			if *p.to, err = time.ParseDuration(text); err != nil || *p.to <= 0 {
				return t, optionError("the parameter %s of the Redis URL must be a duration, such as 3s", p.name)
			}
		}
	}
	for name := range u.query {
		return t, optionError("the Redis URL has an unknown parameter %q for %s://", name, u.kind)
	}
	return t, nil
}

func (u *redisURL) take(name string) string {
	value := u.query.Get(name)
	u.query.Del(name)
	return value
}

func (u *redisURL) single() (asynq.RedisConnOpt, error) {
	if len(u.addrs) > 1 {
		return nil, optionError("the Redis URL names several hosts: use redis-sentinel:// for Sentinels, or redis-cluster:// for a Cluster")
	}
	if u.query.Has("addr") {
		return nil, optionError("the Redis URL has a parameter addr: name the hosts of a Cluster as redis-cluster://h1:6379,h2:6379")
	}
	t, err := u.parameters()
	if err != nil {
		return nil, err
	}
	return asynq.RedisClientOpt{
		Addr: u.addrs[0], Username: u.user, Password: u.password, DB: u.db, TLSConfig: u.tlsConfig(),
		DialTimeout: t.dial, ReadTimeout: t.read, WriteTimeout: t.write,
	}, nil
}

// sentinel uses the user before the hosts for the Sentinels, as asynq and go-redis do. The
// parameters username and password are for Redis.
func (u *redisURL) sentinel() (asynq.RedisConnOpt, error) {
	opt := asynq.RedisFailoverClientOpt{
		MasterName: u.take("master"), SentinelAddrs: u.addrs, SentinelUsername: u.user, SentinelPassword: u.password,
		Username: u.take("username"), Password: u.take("password"), DB: u.db, TLSConfig: u.tlsConfig(),
	}
	if opt.MasterName == "" {
		return nil, optionError("the Redis URL has no parameter master: redis-sentinel://h1:26379,h2:26379/0?master=name")
	}
	t, err := u.parameters()
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = t.dial, t.read, t.write
	return opt, err
}

func (u *redisURL) cluster() (asynq.RedisConnOpt, error) {
	if u.db != 0 {
		return nil, optionError("the Redis URL names the database %d: a Cluster has only database 0", u.db)
	}
	t, err := u.parameters()
	return asynq.RedisClusterClientOpt{
		Addrs: u.addrs, Username: u.user, Password: u.password, TLSConfig: u.tlsConfig(),
		DialTimeout: t.dial, ReadTimeout: t.read, WriteTimeout: t.write,
	}, err
}

// redisLog receives the log lines of go-redis, which has one logger for all clients of a program,
// and dials in goroutines that outlive its clients.
var redisLog redisLogger

// redisLogger writes to the log of the Main that was started last. Without one it drops the
// lines; go-redis also returns the errors.
type redisLogger struct {
	mu  sync.RWMutex
	log *zap.Logger
}

func (r *redisLogger) set(log *zap.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = log
}

// clear drops log unless another one was set since. When it returns, nothing is written to log
// any more.
func (r *redisLogger) clear(log *zap.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.log == log {
		r.log = nil
	}
}

// Printf implements go-redis's interface of a logger.
func (r *redisLogger) Printf(_ context.Context, format string, values ...any) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.log != nil {
		r.log.Warn("message of the Redis client", zap.String("text", strings.TrimSpace(fmt.Sprintf(format, values...))))
	}
}

func init() { redis.SetLogger(&redisLog) }
