package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/recourse-dev/recourse/internal/serverfault"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/casestatus"
)

// readyTimeout limits the health check.
const readyTimeout = 3 * time.Second

// readyHandler answers 200 or 503, in JSON if the request accepts it, else in plain text. Paused
// queues, open circuit breakers, breaches of conservation and webhooks that are paused or fail are
// reported as hints and do not make the process unready: an operator paused the queue, the escrow
// service or a receiver is failing, and a breach needs a person.
//
// Full reasons may contain addresses: they are written only at MetricsListen and to the log. Hints
// name tenants: they are written only at MetricsListen and to this machine.
func (m *Main) readyHandler(full bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), readyTimeout) // a closed connection must not make the process look unready
		defer cancel()
		status, reason := http.StatusOK, ""
		err := m.Service.Health().Check(ctx)
		plain := strings.Join(reasons(err), "; ")
		m.logReady(plain, err)
		if err != nil {
			status, reason = http.StatusServiceUnavailable, plain
		}
		if err != nil && full {
			reason = plain + " (" + err.Error() + ")"
		}
		var h hints
		if full || m.isLocal(r) {
			h = m.hints()
			if err == nil { // a database that does not answer would be waited for in vain
				h.webhooks = m.webhookHint(ctx)
			}
		}
		if r.Header.Get("Accept") == "application/json" {
			body, err := json.Marshal(h.jsonMembers(reason))
			if err != nil {
				status, body = http.StatusInternalServerError, nil
			}
			w.Header().Set("Content-Type", "application/json")
			m.write(w, status, string(body)+"\n")
			return
		}
		if status == http.StatusOK {
			m.text(w, status, "ok\n"+h.text())
			return
		}
		m.text(w, status, fmt.Sprintf("not ready: %s\n", reason)+h.text())
	})
}

// reasons returns why a process is not ready, each reason once, without addresses, in the words of doctor where the fault of
// the server is known.
func reasons(err error) (out []string) {
	if err == nil {
		return nil
	}
	if u, ok := err.(*postadjudication.Unready); ok {
		if f, known := serverfault.Of(u.Err); known {
			return []string{u.Reason + ": " + f.Words}
		}
		return []string{u.Reason}
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{"see the log"}
	}
	for _, one := range joined.Unwrap() {
		for _, reason := range reasons(one) {
			if !slices.Contains(out, reason) {
				out = append(out, reason)
			}
		}
	}
	return out
}

// logReady logs why this process is not ready, once for each change of the reasons.
func (m *Main) logReady(plain string, err error) {
	switch was := m.unreadyReason.Swap(&plain); {
	case was != nil && *was == plain, was == nil && err == nil:
	case err == nil:
		m.Log.Info("ready again")
	default:
		m.Log.Warn("not ready", zap.Error(err))
	}
}

// hints are conditions that do not make this process unready, but that a person should know.
type hints struct {
	paused        []string
	open, stalled []casestatus.Breaker
	breaches      postadjudication.Breaches
	failover      *postadjudication.Failover
	webhooks      *webhookHint // nil: nothing is to be said of them
}

func (m *Main) hints() hints {
	h := hints{paused: m.Service.Health().Paused(), breaches: m.Service.Health().Breaches(), failover: m.Service.Health().Failover()}
	h.open, h.stalled = m.Service.Health().Breakers()
	return h
}

// jsonMembers returns the members of the JSON answer.
func (h hints) jsonMembers(reason string) map[string]any {
	answer := map[string]any{"ready": reason == "", "reason": reason}
	if len(h.paused) > 0 {
		answer["paused_queues"] = h.paused
	}
	if h.breaches.Any() {
		answer["conservation_breaches"] = map[string]int64{"payments_beyond_adjudication": h.breaches.Excesses, "escrows_beyond_held": h.breaches.Escrows, "contradictions": h.breaches.Contradictions}
	}
	if h.failover != nil {
		answer["failover"] = h.failover
	}
	if h.webhooks != nil {
		answer["webhooks"] = h.webhooks
	}
	if len(h.open) > 0 {
		answer["open_circuit_breakers"] = h.open
	}
	if len(h.stalled) > 0 {
		answer["stalled_circuit_breakers"] = h.stalled
	}
	return answer
}

// failoverText returns lines about a failover of the database. A person has to compare the
// decisions shortly before it with other records.
func failoverText(f *postadjudication.Failover) string {
	if f == nil {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "ALARM: the database changed from timeline %d to %d (seen %s), by a failover or a restore: the last commits before it may be lost, unless replication is synchronous\n",
		f.From, f.To, f.SeenAt.UTC().Format(time.RFC3339))
	for _, u := range f.Tenants {
		fmt.Fprintf(&out, "shortly before it tenant %s had %d attempts of unknown outcome and %d findings: %s\n", u.Tenant, u.Unknown, u.Findings, f.Command(u.Tenant))
	}
	return out.String()
}

// text returns the hints as lines for people.
func (h hints) text() string {
	var out strings.Builder
	out.WriteString(failoverText(h.failover))
	for _, b := range h.stalled {
		fmt.Fprintf(&out, "ALARM: %d runs wait behind the circuit breaker of %s (%s), open since %s, and there is no new case to probe the escrow service\n",
			b.Paused, b.Target, b.Family, b.Since.UTC().Format(time.RFC3339))
	}
	for _, b := range h.open {
		fmt.Fprintf(&out, "the circuit breaker of %s (%s, tenant %s) is %s since %s: its runs are paused\n",
			b.Target, b.Family, b.Tenant, b.State, b.Since.UTC().Format(time.RFC3339))
	}
	for _, queue := range h.paused {
		fmt.Fprintf(&out, "the queue %s is paused in asynq: its runs wait until it is unpaused\n", queue)
	}
	if h.breaches.Excesses > 0 || h.breaches.Escrows > 0 {
		fmt.Fprintf(&out, "conservation was breached: %d payments beyond the adjudicated amount, %d escrows that committed more than they hold\n", h.breaches.Excesses, h.breaches.Escrows)
	}
	if h.breaches.Contradictions > 0 {
		fmt.Fprintf(&out, "%d answers or findings contradict the payments on record: see the receipts \"contradicted\"\n", h.breaches.Contradictions)
	}
	out.WriteString(h.webhooks.text())
	return out.String()
}
