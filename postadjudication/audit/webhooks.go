package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/recourse-dev/recourse/internal/schema/stored"
	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// recordedWebhook is a webhook as its receipts describe it. They hold the digests of its encrypted secrets,
// and until when the former secret is in force.
type recordedWebhook struct {
	Webhook
	rotation string // the changes of its last rotation; empty: it has one secret
	receipt  string // the last one

	secret, formerSecret string // binding.EncryptedSecretDigest; empty: it has none

	position        receipts.WebhookPosition // the last one that was set
	positionReceipt string
	types           []string // of the events that it gets; empty: every type
}

// foldWebhooks derives a tenant's webhooks from the receipts of its webhook log, by id. It reports the
// receipts that can't be read, and those that may not follow the ones before them.
func (a *Report) foldWebhooks(at breakSubject, rs []receipts.Receipt) map[string]*recordedWebhook {
	out := map[string]*recordedWebhook{}
	for _, r := range rs {
		if r.Subtype != receipts.WebhookChanged {
			continue
		}
		p, err := r.Payload()
		if err != nil {
			a.failUnreadable(at.tenant, r, err)
			continue
		}
		w := out[p.Reference]
		if w == nil {
			w = &recordedWebhook{}
			out[p.Reference] = w
		}
		if problem := w.apply(r, p); problem != "" {
			a.fail(InvariantFold, at.withReceipt(r.Seq), "webhook %s of %s: receipt %s %s", p.Reference, at.tenant, r.ID(), problem)
		}
	}
	return out
}

// webhookDefinition is what the definition of a webhook states.
type webhookDefinition struct {
	URL         string   `json:"url"`
	Types       []string `json:"types"`
	Description string   `json:"description"`
	State       string   `json:"state"`
}

// apply makes a change that a receipt records. It returns why the change may not follow those before
// it; empty if it may.
func (w *recordedWebhook) apply(r receipts.Receipt, p receipts.Payload) (problem string) {
	var before, after webhookDefinition
	if err := json.Unmarshal([]byte(p.Webhook), &after); err != nil {
		problem = "has a definition that can't be read: " + err.Error()
	}
	if w.Version > 0 && json.Unmarshal([]byte(w.Definition), &before) != nil {
		before = after // a receipt before has the problem
	}
	if problem == "" {
		problem = cmp.Or(webhookStepProblem(w.Version == 0, before, after, p.AskedFor), w.secretProblem(p))
	}
	setsPosition := p.AskedFor == binding.WebhookCreate || p.AskedFor == binding.WebhookReplay
	if problem == "" && setsPosition != (p.WebhookPosition != nil) {
		problem = fmt.Sprintf("says %s, and whether it set a position: %t", p.AskedFor, p.WebhookPosition != nil)
	}
	if w.Version == 0 {
		w.CreatedAt, w.CreatedBy = r.At, r.Actor
	}
	switch p.AskedFor {
	case binding.WebhookCreate, binding.WebhookReplay, binding.WebhookResume:
		w.PositionVersion++
	case binding.WebhookRotate:
		w.rotation, w.formerSecret = p.Changes, w.secret
		if p.Changes == binding.SecretRotation(time.Time{}) {
			w.formerSecret = ""
		}
	case binding.WebhookDelete:
		w.rotation, w.formerSecret = "", ""
	}
	if p.WebhookPosition != nil {
		w.position, w.positionReceipt = *p.WebhookPosition, r.ID()
	}
	w.secret = p.ContentDigest
	w.Version++
	w.types = after.Types
	w.State, w.Definition, w.ChangedAt, w.ChangedBy, w.Reason, w.receipt = after.State, p.Webhook, r.At, r.Actor, p.Reason, r.ID()
	return problem
}

// secretProblem returns why a receipt may not state the secret that it states; empty if it may.
func (w *recordedWebhook) secretProblem(p receipts.Payload) string {
	changes := p.AskedFor == binding.WebhookCreate || p.AskedFor == binding.WebhookRotate || p.AskedFor == binding.WebhookDelete
	switch {
	case (p.ContentDigest == "") != (p.AskedFor == binding.WebhookDelete):
		return fmt.Sprintf("says %s, and whether the webhook has a secret: %t", p.AskedFor, p.ContentDigest != "")
	case !changes && p.ContentDigest != w.secret:
		return fmt.Sprintf("says %s, and another secret than the one before", p.AskedFor)
	}
	return ""
}

// webhookStepProblem returns why an action may not lead from one definition to another; empty if it
// may.
func webhookStepProblem(first bool, before, after webhookDefinition, action string) string {
	state := before.State
	switch action {
	case binding.WebhookCreate, binding.WebhookResume:
		state = stored.WebhookActive
	case events.WebhookPause:
		state = stored.WebhookPaused
	case binding.WebhookDelete:
		state = stored.WebhookDeleted
	case binding.WebhookRotate, binding.WebhookReplay:
	default:
		return fmt.Sprintf("says %q, which is no change of a webhook", action)
	}
	switch {
	case first != (action == binding.WebhookCreate):
		return fmt.Sprintf("says %s, and creation is the first change and no other", action)
	case !first && before.State == stored.WebhookDeleted:
		return fmt.Sprintf("says %s of a webhook that was deleted", action)
	case after.State != state:
		return fmt.Sprintf("says %s, and the state %q in place of %q", action, after.State, state)
	case !first && (after.URL != before.URL || !slices.Equal(after.Types, before.Types) || after.Description != before.Description):
		return fmt.Sprintf("says %s, and another URL, types or description than the one before", action)
	}
	return ""
}

// auditWebhooks compares a tenant's webhooks, also deleted ones, with the receipts of its webhook
// log, and how far each is with the order of events.
func (s *auditor) auditWebhooks(ctx context.Context, a *Report, at breakSubject, o OperationLog) error {
	var progress []*webhookProgress
	recorded := a.foldWebhooks(at, o.Trail)
	for _, row := range o.Webhooks {
		id := row.ID.String()
		t := recorded[id]
		delete(recorded, id)
		if t == nil {
			a.fail(InvariantFold, at, "webhook %s of %s was made, and no receipt says so", id, at.tenant)
			continue
		}
		t.compare(row).fail(a, at, fmt.Sprintf("webhook %s of %s", id, at.tenant))
		if row.PositionVersion > 0 {
			progress = append(progress, &webhookProgress{Webhook: row, recorded: t})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(recorded)) {
		a.fail(InvariantFold, at, "webhook %s of %s is in receipt %s, but not stored", id, at.tenant, recorded[id].receipt)
	}
	return s.auditProgress(ctx, a, at, progress)
}

func (t *recordedWebhook) compare(w Webhook) (d differences) {
	d.compare("version", w.Version, t.Version)
	d.compare("state", w.State, t.State)
	d.compare("definition", w.Definition, t.Definition)
	d.compare("creator", w.CreatedBy, t.CreatedBy)
	d.compareTimes("time of creation", w.CreatedAt, t.CreatedAt)
	d.compare("who changed it last", w.ChangedBy, t.ChangedBy)
	d.compareTimes("time of the last change", w.ChangedAt, t.ChangedAt)
	d.compare("reason", w.Reason, t.Reason)
	d.compare("secret, by the digest of what is encrypted,", binding.EncryptedSecretDigest(w.Secret), t.secret)
	d.compare("former secret, by the digest of what is encrypted,", binding.EncryptedSecretDigest(w.FormerSecret), t.formerSecret)
	d.compare("rotation of the secret", binding.SecretRotation(w.FormerUntil), cmp.Or(t.rotation, binding.SecretRotation(time.Time{})))
	if w.PositionVersion > 0 { // a webhook without a position is a break of its own
		d.compare("version of its position", w.PositionVersion, t.PositionVersion)
	}
	return d
}
