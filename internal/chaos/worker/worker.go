package worker

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	_ "github.com/lib/pq"
	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/chaos/remote"
	"github.com/recourse-dev/recourse/internal/failpoint"
	"github.com/recourse-dev/recourse/internal/fakeescrow"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/escrowhttp"
)

const plainFamilyName = "chore"

// PlainFamily is a family that moves no money. Its tasks succeed, and a second one of the
// same retry key runs again.
func PlainFamily() postadjudication.PlainFamily {
	return postadjudication.PlainFamily{Name: plainFamilyName, Handle: func(context.Context, background.Attempt) background.Result {
		return background.Result{Class: background.Executed}
	}}
}

// Main runs a worker and returns true if the environment has Settings. A program calls it first,
// and exits with the code if it was a worker.
func Main() (code int, isWorker bool) {
	text, isWorker := os.LookupEnv(Variable)
	if !isWorker {
		return 0, false
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1, true
	}
	return 0, true
}

type process struct {
	settings Settings
	offset   atomic.Int64
	service  *postadjudication.Service
	db       *sql.DB
	log      *zap.Logger

	mu  sync.Mutex
	out *json.Encoder
}

func run(ctx context.Context, text string, in io.Reader, out io.Writer) (err error) {
	p := &process{out: json.NewEncoder(out)}
	if p.settings, err = parseSettings(text); err != nil {
		return err
	}
	if err := failpoint.Arm(p.settings.Failpoint); err != nil {
		return err
	}
	p.offset.Store(int64(p.settings.ClockOffset))
	if err := p.open(ctx); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	commands := make(chan error, 1)
	address, stopJobs, err := p.serveJobs(p.log)
	if err != nil {
		return err
	}
	if err := p.answer(Reply{Address: address}); err != nil {
		return err
	}
	go func() {
		defer end()
		commands <- p.serve(ctx, in)
	}()
	if p.settings.CommandsOnly {
		<-ctx.Done()
	} else {
		err = p.service.Run(ctx)
	}
	err = errors.Join(err, stopJobs())
	select {
	case cause := <-commands:
		err = errors.Join(err, cause)
	default: // ended by a signal; the read of the input can't be interrupted
	}
	_ = p.db.Close() // a connection that broke before may return an error
	return errors.Join(err, p.service.Close())
}

func (p *process) open(ctx context.Context) error {
	redis, err := asynq.ParseRedisURI(p.settings.RedisURL)
	if err != nil {
		return err
	}
	calls, err := escrowhttp.New(escrowhttp.Config{
		BaseURL: p.settings.EscrowURL, KeyLifetime: p.settings.KeyLifetime, InFlight: p.settings.InFlight, Asynchronous: p.settings.Asynchronous,
		Client: taggedClient(p.settings.Name),
	})
	if err != nil {
		return err
	}
	log := zap.NewProductionConfig()
	log.OutputPaths, log.DisableStacktrace, log.Sampling = []string{"stderr"}, true, nil
	log.EncoderConfig.EncodeTime = zapTime
	logger, err := log.Build()
	if err != nil {
		return err
	}
	if p.db, err = sql.Open("postgres", p.settings.DatabaseURL); err != nil {
		return err
	}
	s := p.settings
	p.log = logger.Named(s.Name)
	c := postadjudication.Config{
		DatabaseURL: s.DatabaseURL, Redis: redis, Executor: misbehavingExecutor{fakeescrow.NewPanicking(calls), p.received}, Worker: s.Name, Logger: p.log,
		Remote:    postadjudication.RemoteWorkers{KeyLifetime: s.RemoteKeyLifetime},
		LostAfter: s.LostAfter, TimeLimit: s.TimeLimit, Grace: s.Grace, Slots: s.Slots, Servers: 2,
		Now:      func() time.Time { return time.Now().Add(time.Duration(p.offset.Load())) },
		Families: []postadjudication.PlainFamily{PlainFamily()}, Jobs: true, PaymentQueues: []string{remote.PayQueue}, RuleEvery: 100 * time.Millisecond, Shards: s.Shards,
	}
	if c.Targets, err = s.Brief.Targets(s.Name, p.received); err != nil {
		return err
	}
	if s.NoPlainFamily {
		c.Families = nil
	}
	if s.Webhooks {
		if c.Webhooks, err = webhooksConfig(); err != nil {
			return err
		}
	}
	c.Policy.BaseDelay = s.BaseDelay
	if err := s.configureRetention(&c); err != nil {
		return err
	}
	if s.Handled {
		c.OnDeath.Handle = func(context.Context, postadjudication.DeadLetter) background.Result {
			return background.Result{Class: background.Executed}
		}
	}
	p.service, err = postadjudication.Open(ctx, c)
	return err
}

// serve reads commands and executes them concurrently, until the input ends.
func (p *process) serve(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var c Command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("command %q: %w", lines.Text(), err)
		}
		go func() {
			if err := p.answer(p.do(ctx, c)); err != nil {
				fmt.Fprintln(os.Stderr, "worker: the reply was not taken:", err)
			}
		}()
	}
	return lines.Err()
}

// received tells the runner a payment that the executor returns, before the product has it.
func (p *process) received(s Statement) {
	if err := p.answer(Reply{Received: &s}); err != nil {
		fmt.Fprintln(os.Stderr, "worker: a statement was not taken:", err)
	}
}

func (p *process) answer(r Reply) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Encode(r)
}

// Variable is the environment variable whose JSON Settings make a program a worker.
const Variable = "RECOURSE_CHAOS_WORKER"

// Settings of one worker.
type Settings struct {
	Name        string
	DatabaseURL string
	RedisURL    string
	EscrowURL   string
	Brief       Brief // another escrow service; none when its URL is empty

	Failpoint   string        // none when empty
	LostAfter   time.Duration // this and the next four as of postadjudication.Config
	TimeLimit   time.Duration
	Grace       time.Duration
	BaseDelay   time.Duration
	Slots       int
	ClockOffset time.Duration // of this process from the machine's clock
	KeyLifetime time.Duration // of the executor
	// RemoteKeyLifetime is how long the payment services of remote workers know an operation key.
	RemoteKeyLifetime time.Duration
	InFlight          time.Duration // of the executor; longer than any fault delays a call
	Asynchronous      time.Duration // of the executor
	Handled           bool          // dead letters of settlements have a handler, which succeeds
	Archive           string        // directory of archived letters; none when empty
	Retain            string        // how long letters of settlements and jobs are kept, as ISO 8601; needs Archive
	Shards            int           // as of postadjudication.Config
	NoPlainFamily     bool          // without the plain family
	Webhooks          bool          // webhooks can be created, and are sent to, on this machine
	CommandsOnly      bool          // answer commands, execute nothing
}

// BriefTarget is the target of the escrow service that soon forgets keys.
const BriefTarget = "brief"

// Brief is an escrow service that forgets keys while a run lasts, and whose lookups know them for longer.
type Brief struct {
	URL            string
	KeyLifetime    time.Duration
	LookupLifetime time.Duration
	InFlight       time.Duration
}

// Targets returns the target of the service, whose executor tells received each payment; none without a URL.
func (b Brief) Targets(worker string, received func(Statement)) ([]postadjudication.Target, error) {
	if b.URL == "" {
		return nil, nil
	}
	calls, err := escrowhttp.New(escrowhttp.Config{
		BaseURL: b.URL, KeyLifetime: b.KeyLifetime, LookupLifetime: b.LookupLifetime, InFlight: b.InFlight, Client: taggedClient(worker),
	})
	return []postadjudication.Target{{Name: BriefTarget, Executor: misbehavingExecutor{fakeescrow.NewPanicking(calls), received}}}, err
}

// Environment returns the variable that makes a program such a worker.
func (s Settings) Environment() (string, error) {
	text, err := json.Marshal(s)
	return Variable + "=" + string(text), err
}

func parseSettings(text string) (Settings, error) {
	var s Settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("worker: %s: %w", Variable, err)
	}
	return s, nil
}
