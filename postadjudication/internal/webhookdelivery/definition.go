package webhookdelivery

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/receipts/events"
)

// Definition is a webhook as receipts and the definition column state it.
type Definition struct {
	URL         string             `json:"url"`
	Types       []events.Type      `json:"types"`
	Description string             `json:"description,omitempty"`
	State       webhookstore.State `json:"state"`
}

// Text returns the definition as it is stored.
func (d Definition) Text() (string, error) {
	if d.Types == nil {
		d.Types = []events.Type{}
	}
	text, err := json.Marshal(d)
	return string(text), err
}

// ParseDefinition returns the definition of a stored webhook.
func ParseDefinition(w webhookstore.Webhook) (d Definition, err error) {
	if err := json.Unmarshal([]byte(w.Definition), &d); err != nil {
		return d, fmt.Errorf("webhook %s of %s: %w", w.ID, w.Tenant, err)
	}
	return d, nil
}

// Cause is who changes a webhook, when and why, and the action that the receipt names.
type Cause struct {
	Actor, Action, Reason string
	At                    time.Time
}

// ChangeState returns the change of a webhook to another state, with its receipt.
func ChangeState(now webhookstore.Webhook, to webhookstore.State, c Cause) (webhookstore.Change, error) {
	d, err := ParseDefinition(now)
	if err != nil {
		return webhookstore.Change{}, err
	}
	d.State = to
	next := now
	next.State = to
	return ChangeTo(next, d, c, string(now.State)+" to "+string(to))
}

// ChangeTo returns the change to a webhook with a definition, with its receipt. changes says what is
// different.
func ChangeTo(next webhookstore.Webhook, d Definition, c Cause, changes string) (webhookstore.Change, error) {
	text, err := d.Text()
	if err != nil {
		return webhookstore.Change{}, err
	}
	next.Definition, next.ChangedAt, next.ChangedBy, next.Reason = text, c.At, c.Actor, c.Reason
	return webhookstore.Change{Next: next, Draft: ReceiptOf(next, c.Action, changes)}, nil
}

// ReceiptOf returns the receipt of a change, after which the webhook is w. It tells the secrets apart by
// the digest of the encrypted one, which says nothing about it.
func ReceiptOf(w webhookstore.Webhook, action, changes string) receipts.Draft {
	return receipts.Draft{Actor: w.ChangedBy, At: w.ChangedAt, Payload: receipts.Payload{
		Reference: w.ID.String(), Webhook: w.Definition, AskedFor: action, Changes: changes, Reason: w.Reason, ContentDigest: binding.EncryptedSecretDigest(w.Secret),
	}}
}
