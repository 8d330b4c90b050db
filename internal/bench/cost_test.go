package main

import (
	"testing"
	"time"
)

func TestScriptsAreCounted(t *testing.T) {
	t.Parallel()
	const info = "# Commandstats\r\ncmdstat_get:calls=9,usec=1\r\ncmdstat_eval:calls=2,usec=80,usec_per_call=40.00\r\ncmdstat_evalsha:calls=40,usec=7\r\n"
	if n, err := scriptsIn(info); err != nil || n != 42 {
		t.Errorf("%d scripts, %v; want 42", n, err)
	}
	if n, err := scriptsIn(""); err != nil || n != 0 {
		t.Errorf("%d scripts in nothing, %v", n, err)
	}
	if n, err := scriptsIn("cmdstat_evalsha:usec=7\r\n"); err == nil {
		t.Errorf("a line without calls gives %d", n)
	}
}

func TestCostsAreDividedByTasksAndByTime(t *testing.T) {
	t.Parallel()
	before := cost{at: time.Second, client: time.Second, redis: time.Second, postgres: time.Second, scripts: 100, objects: 1000, bytes: 1e6}
	after := cost{at: 11 * time.Second, client: 3 * time.Second, redis: 2 * time.Second, postgres: 6 * time.Second, scripts: 700, objects: 3000, bytes: 5e6}
	m := metrics{}
	spent := after.since(before)
	spent.perTask(200, m)
	spent.shares(m)
	wanted := metrics{clientCPU: 10, redisCPU: 5, postgresCPU: 25, scripts: 3, allocations: 10, allocatedKB: 20, clientShare: 20, redisShare: 10, postgresShare: 50}
	for name, want := range wanted {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
}
