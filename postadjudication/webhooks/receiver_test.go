package webhooks_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/internal/rig"
	"github.com/recourse-dev/recourse/postadjudication/internal/webhookdelivery"
	"github.com/recourse-dev/recourse/postadjudication/webhooks"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// maxWaiting is how many events a webhook reads ahead of those that are not delivered.
const maxWaiting = webhookdelivery.MaxWaiting

// loopback is what tests open, and nothing else.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}

// quickly makes tries follow one another within milliseconds.
func quickly(failures int) time.Duration { return time.Duration(min(failures, 20)) * time.Millisecond }

func key(fill string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, 32)))
}

// config returns a configuration that sends to this machine, quickly.
func config(t testing.TB) webhooks.Config {
	t.Helper()
	keys, err := webhooks.ParseKeys(key("k"))
	if err != nil {
		t.Fatal(err)
	}
	return webhooks.Config{Keys: keys, Allow: loopback, Delay: quickly, GiveUp: time.Hour}
}

// fixture is a service on real servers that sends webhooks.
type fixture struct {
	*rig.Rig
	webhooks.Webhooks
}

func newFixture(t testing.TB, change ...func(*postadjudication.Config)) *fixture {
	t.Helper()
	withWebhooks := func(c *postadjudication.Config) { c.Webhooks = config(t) }
	r := rig.New(t, append([]func(*postadjudication.Config){withWebhooks}, change...)...)
	return &fixture{r, r.As("acme", "user:ada").Webhooks}
}

// other returns another process on the same servers.
func (f *fixture) other(change ...func(*postadjudication.Config)) *fixture {
	withWebhooks := func(c *postadjudication.Config) { c.Webhooks = config(f.T) }
	r := f.OtherProcess(append([]func(*postadjudication.Config){withWebhooks}, change...)...)
	return &fixture{r, r.As("acme", "user:ada").Webhooks}
}

// receiver is an HTTP server that keeps what it accepted, verified and parsed by the published
// libraries.
type receiver struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	secrets  []string
	answer   func(event.Event) int // the status; nil: 204
	accepted []event.Event
	refused  []string // ids of requests that were answered otherwise
	bodies   map[string]string
	tries    int
}

func newReceiver(t testing.TB, answer func(event.Event) int) *receiver {
	r := &receiver{t: t, answer: answer, bodies: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // the sender went away
	}
	var e event.Event
	if err := json.Unmarshal(body, &e); err != nil {
		r.t.Errorf("%s: %v", body, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if !r.verified(body, q.Header) {
		r.t.Errorf("no secret verifies %s", q.Header)
	}
	if q.Header.Get("webhook-id") != e.ID() {
		r.t.Errorf("webhook-id %s, id %s", q.Header.Get("webhook-id"), e.ID())
	}
	if before, ok := r.bodies[e.ID()]; ok && before != string(body) {
		r.t.Errorf("another body at a later try: %s, %s", before, body)
	}
	r.bodies[e.ID()] = string(body)
	status := http.StatusNoContent
	if r.answer != nil {
		status = r.answer(e)
	}
	if status < 300 {
		r.accepted = append(r.accepted, e)
	} else {
		r.refused = append(r.refused, e.ID())
	}
	w.WriteHeader(status)
}

func (r *receiver) verified(body []byte, h http.Header) bool {
	return slices.ContainsFunc(r.secrets, func(secret string) bool {
		w, err := standardwebhooks.NewWebhook(secret)
		return err == nil && w.Verify(body, h) == nil
	})
}

// trusts adds a secret.
func (r *receiver) trusts(secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = append(r.secrets, secret)
}

func (r *receiver) set(answer func(event.Event) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// events returns what was accepted.
func (r *receiver) events() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.accepted)
}

// ids returns the ids of accepted events, each once, in the order of their first arrival.
func (r *receiver) ids() (out []string) {
	seen := map[string]bool{}
	for _, e := range r.events() {
		if !seen[e.ID()] {
			seen[e.ID()] = true
			out = append(out, e.ID())
		}
	}
	return out
}

func (r *receiver) tried() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tries
}

// create creates a webhook of the receiver that sends from the first event on.
func (f *fixture) create(r *receiver, change ...func(*webhooks.New)) webhooks.Webhook {
	f.T.Helper()
	n := webhooks.New{URL: r.URL, After: new(webhooks.Position), Reason: "for the ledger"}
	for _, c := range change {
		c(&n)
	}
	w, secret, err := f.Create(context.Background(), n)
	if err != nil {
		f.T.Fatal(err)
	}
	r.trusts(secret)
	return w
}

// log returns the events of the tenant up to now.
func (f *fixture) log() (out []postadjudication.Event) {
	f.T.Helper()
	if err := f.DrainEvents(context.Background()); err != nil {
		f.T.Fatal(err)
	}
	for after := postadjudication.Position(0); ; {
		page, next, err := f.Events(context.Background(), "acme", after, postadjudication.MaxEvents)
		if err != nil {
			f.T.Fatal(err)
		}
		if len(page) == 0 {
			return out
		}
		out, after = append(out, page...), next
	}
}

// waitAll waits until the receiver has every event of the log, and checks the order within cases.
func (f *fixture) waitAll(r *receiver) {
	f.T.Helper()
	want := f.log()
	f.Wait("every event has arrived", func() bool { return len(r.ids()) >= len(want) })
	got := r.ids()
	slices.Sort(got)
	all := make([]string, len(want))
	for i, e := range want {
		all[i] = e.ID
	}
	slices.Sort(all)
	if !slices.Equal(got, all) {
		f.T.Errorf("%d events arrived, the log has %d", len(got), len(all))
	}
	f.checkOrder(r)
}

// checkOrder checks that the first arrivals of each case are in the order of the log.
func (f *fixture) checkOrder(r *receiver) {
	f.T.Helper()
	last, seen := map[any]string{}, map[string]bool{}
	for _, e := range r.events() {
		if seen[e.ID()] {
			continue
		}
		seen[e.ID()] = true
		sequence, ok := e.Extensions()["sequence"].(string)
		of := e.Extensions()["caseid"]
		if !ok || sequence <= last[of] {
			f.T.Errorf("%s came after %s of its case", sequence, last[of])
		}
		last[of] = sequence
	}
}

// get returns a webhook.
func (f *fixture) get(w webhooks.Webhook) webhooks.Webhook {
	f.T.Helper()
	got, err := f.Get(context.Background(), w.ID)
	if err != nil {
		f.T.Fatal(err)
	}
	return got
}
