package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

// storeLevels are the levels of all processes. Failed has the parts that could not be read.
type storeLevels struct {
	postadjudication.Levels
	Webhooks webhooks.Health
}

// webhooksPart is read beside postadjudication.LevelParts.
const webhooksPart = "webhooks"

// readLevels reads the levels from the database. Each part fails alone.
func readLevels(ctx context.Context, s measuredService) (out storeLevels) {
	var err error
	if out.Levels, err = s.Levels(ctx); err != nil && len(out.Failed) == 0 {
		out.Failed = map[string]error{}
		for _, part := range postadjudication.LevelParts {
			out.Failed[part] = err
		}
	}
	out.ReadPart(ctx, webhooksPart, func(ctx context.Context) (err error) {
		out.Webhooks, err = s.Webhooks(ctx)
		return err
	})
	return out
}

func newLevelCache(s measuredService, log *zap.Logger) *levelCache {
	return &levelCache{
		measure:  func(ctx context.Context) storeLevels { return readLevels(ctx, s) },
		now:      time.Now,
		log:      log,
		failures: newCounters("recourse_store_metric_failures_total", "Failures to read a part of the metrics over all processes from the database, by part. What is of the part is not exported until it can be read.", "part", append([]string{webhooksPart}, postadjudication.LevelParts...)...),
	}
}

const (
	// levelsTTL is the minimum time for which levels are cached.
	levelsTTL = 5 * time.Second
	// levelsPauseFactor limits the load on the database: after a query of one second the
	// levels are cached for twenty.
	levelsPauseFactor = 20
	levelsTimeout     = 5 * time.Second
)

// levelCache caches the levels, so that frequent scrapes cost the database little.
type levelCache struct {
	measure  func(context.Context) storeLevels
	now      func() time.Time
	failures *prometheus.CounterVec
	log      *zap.Logger

	mu    sync.Mutex
	last  storeLevels
	until time.Time
}

// get returns the cached levels, or reads them if they are too old. Failures are cached, too.
func (l *levelCache) get(ctx context.Context) storeLevels {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := l.now()
	if began.Before(l.until) {
		return l.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), levelsTimeout) // other callers wait for the result, too
	defer cancel()
	before := l.last.Failed
	l.last = l.measure(ctx)
	ended := l.now()
	l.until = ended.Add(max(levelsTTL, levelsPauseFactor*ended.Sub(began)))
	l.report(before)
	return l.last
}

// report counts the parts that could not be read. It logs the first failure of several in a row, and their end.
func (l *levelCache) report(before map[string]error) {
	for part, err := range l.last.Failed {
		l.failures.WithLabelValues(part).Inc()
		if before[part] == nil {
			l.log.Warn("a part of the metrics can't be read", zap.String("part", part), zap.Error(err))
		}
	}
	for part := range before {
		if l.last.Failed[part] == nil {
			l.log.Info("a part of the metrics can be read again", zap.String("part", part))
		}
	}
}
