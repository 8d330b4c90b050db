package app

import (
	"crypto/tls"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

func TestEveryFormOfARedisURLIsReadAsItIsMeant(t *testing.T) {
	t.Parallel()
	encrypted := &tls.Config{MinVersion: tls.VersionTLS12}
	for in, want := range map[string]asynq.RedisConnOpt{
		"redis://h":                         asynq.RedisClientOpt{Addr: "h:6379"},
		"redis://h/":                        asynq.RedisClientOpt{Addr: "h:6379"},
		"redis://h:7000/3":                  asynq.RedisClientOpt{Addr: "h:7000", DB: 3},
		"redis://:word@[::1]:7/0":           asynq.RedisClientOpt{Addr: "[::1]:7", Password: "word"},
		"redis://app:wo%40rd@h":             asynq.RedisClientOpt{Addr: "h:6379", Username: "app", Password: "wo@rd"},
		"rediss://h:7?read_timeout=2s":      asynq.RedisClientOpt{Addr: "h:7", TLSConfig: encrypted, ReadTimeout: 2 * time.Second},
		"redis-sentinel://h?master=m":       asynq.RedisFailoverClientOpt{MasterName: "m", SentinelAddrs: []string{"h:26379"}},
		"redis-sentinel://h:1,g/2?master=m": asynq.RedisFailoverClientOpt{MasterName: "m", SentinelAddrs: []string{"h:1", "g:26379"}, DB: 2},
		"rediss-sentinel://s:t@h,g?master=m&username=app&password=w%26x": asynq.RedisFailoverClientOpt{
			MasterName: "m", SentinelAddrs: []string{"h:26379", "g:26379"}, SentinelUsername: "s", SentinelPassword: "t", Username: "app", Password: "w&x", TLSConfig: encrypted,
		},
		"redis-cluster://h:1,h:2,[::1]:3": asynq.RedisClusterClientOpt{Addrs: []string{"h:1", "h:2", "[::1]:3"}},
		"rediss-cluster://app:w@h/0?dial_timeout=1s": asynq.RedisClusterClientOpt{
			Addrs: []string{"h:6379"}, Username: "app", Password: "w", TLSConfig: encrypted, DialTimeout: time.Second,
		},
	} {
		got, err := ParseRedis(in)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", in, got, err, want)
		}
	}
}

func TestARedisURLThatWouldBeMisreadIsRefusedAndSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	for in, word := range map[string]string{
		"":                             "redis://host:6379/0",
		"h:6379":                       "redis://host:6379/0",
		"http://h":                     "redis://host:6379/0",
		"://":                          "redis://host:6379/0",
		"redis://":                     "redis://host:6379/0",
		"redis://:hush@h:x/0":          "redis://host:6379/0",
		"redis://:hush@h/x":            "is not a number",
		"redis://:hush@h1,h2":          "redis-sentinel://",
		"redis://:hush@h1:1?addr=h2:2": "redis-cluster://",
		"redis://:hush@h?db=3":         `"db"`,
		"redis-sentinel://:hush@h":     "no parameter master",
		"redis-sentinel://:hush@h?master=m&tls=1": `"tls"`,
		"redis-cluster://:hush@h/1":               "has only database 0",
		"redis-cluster://:hush@h,/0":              "redis-cluster://h1:6379",
		"redis://:hush@h?read_timeout=soon":       "read_timeout",
		"redis-socket:///tmp/x":                   "redis://host:6379/0",
	} {
		opt, err := ParseRedis(in)
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %+v, %v", in, opt, err)
		}
	}
}
