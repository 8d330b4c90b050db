package asynqredis

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A change of go-redis's defaults changes nothing here.
func TestConnectionsGoByWhatIsWrittenDown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opt  asynq.RedisConnOpt
		read time.Duration
	}{
		"no time given": {asynq.RedisClientOpt{Addr: "localhost:1"}, 3 * time.Second},
		"a time given":  {asynq.RedisClientOpt{Addr: "localhost:1", ReadTimeout: 7 * time.Second}, 7 * time.Second},
		"Sentinel":      {asynq.RedisFailoverClientOpt{MasterName: "m", SentinelAddrs: []string{"localhost:1"}}, 3 * time.Second},
	} {
		client, err := NewClient(c.opt)
		if err != nil {
			t.Fatal(err)
		}
		o := client.(*redis.Client).Options()
		if o.ReadTimeout != c.read || o.WriteTimeout != c.read || o.DialerRetries != 1 || o.PipelinePoolSize >= 0 || o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
			t.Errorf("%s: read %s, write %s, %d dials, %d connections for pipelines, maintenance %s", name,
				o.ReadTimeout, o.WriteTimeout, o.DialerRetries, o.PipelinePoolSize, o.MaintNotificationsConfig.Mode)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	client, err := NewClient(asynq.RedisClusterClientOpt{Addrs: []string{"localhost:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	o := client.(*redis.ClusterClient).Options()
	if o.ReadTimeout != 3*time.Second || o.WriteTimeout != 3*time.Second || o.DialerRetries != 1 || o.PipelinePoolSize >= 0 ||
		o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled || o.ClusterStateReloadInterval != 10*time.Second {
		t.Errorf("a Cluster: %+v", o)
	}
}
