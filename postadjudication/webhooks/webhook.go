package webhooks

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/internal/redact"
	"github.com/recourse-dev/recourse/postadjudication/internal/eventlog"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/webhookstore"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/internal/webhookdelivery"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts/events"
)

// Position is a position in the order of a tenant's events.
type Position = eventlog.Position

// State is the state of a webhook.
type State = webhookstore.State

// The states.
const (
	Active  = webhookstore.Active  // events are sent
	Paused  = webhookstore.Paused  // nothing is sent, and nothing is skipped
	Deleted = webhookstore.Deleted // final
)

// Config configures webhooks. Keys encrypt their secrets; ParseKeys parses them.
type (
	Config = webhookdelivery.Config
	Keys   = webhookdelivery.Keys
	Stats  = webhookdelivery.Stats
)

// ErrNoKey means that a webhook can't be created, rotated or tested since this process has no key
// that encrypts secrets.
var ErrNoKey = webhookdelivery.ErrNoKey

// ParseKeys parses keys of 32 bytes each, as base64 with commas between them. The first encrypts, all
// decrypt. An empty text gives none. Errors never contain a key.
func ParseKeys(text string) (Keys, error) { return webhookdelivery.ParseKeys(text) }

// ContentType is that of every request.
const ContentType = webhookdelivery.ContentType

// MaxWebhooks is the maximum number of webhooks of a tenant.
const MaxWebhooks = webhookstore.MaxWebhooks

// ErrTooMany means that a tenant has MaxWebhooks already.
var ErrTooMany = webhookstore.ErrTooMany

// Webhook is a URL to which the public events of a tenant are sent. It does not hold the secret.
type Webhook struct {
	ID          uuid.UUID     `json:"id"`
	URL         string        `json:"url"`
	Types       []events.Type `json:"types"` // empty: every type
	Description string        `json:"description,omitempty"`
	State       State         `json:"state"`
	CreatedAt   time.Time     `json:"created_at"`
	CreatedBy   string        `json:"created_by"`
	ChangedAt   time.Time     `json:"changed_at"`
	ChangedBy   string        `json:"changed_by"`
	Reason      string        `json:"reason"` // of the last change

	// FormerSecretUntil is until when requests are also signed with the secret before the last
	// rotation; zero: they are not.
	FormerSecretUntil time.Time `json:"former_secret_until,omitzero"`

	// Position is that of the last event before the oldest one that is not delivered. Waiting counts
	// the events that were read and are being sent or wait for another try. Both are at most some
	// moments old.
	Position    Position  `json:"position"`
	Waiting     int       `json:"waiting"`
	Delivered   int64     `json:"delivered"`             // events, in all
	DeliveredAt time.Time `json:"delivered_at,omitzero"` // the last one; zero: none
	// Failures counts the tries that failed since an event was delivered, FailingSince is when the
	// oldest event that is not delivered failed first, and LastFailure is why the last try failed.
	Failures     int64     `json:"failures"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastFailure  string    `json:"last_failure,omitempty"`
}

// New describes a webhook to create.
type New struct {
	URL         string        // https, or http to addresses that the operator has opened; without a user, a fragment and secrets
	Types       []events.Type // empty: every type
	Description string
	Secret      string    // whsec_ and 24 to 64 bytes as base64; empty: one is generated
	After       *Position // the first event sent is the first after it; nil: the first from now on
	Reason      string    // why; required
}

// webhookOf returns a stored webhook as users see it. One whose definition can't be read, since a
// newer program wrote it or somebody altered it, says so as its last failure.
func webhookOf(w webhookstore.Webhook, now time.Time) Webhook {
	d, err := webhookdelivery.ParseDefinition(w)
	if err != nil {
		w.Position.LastFailure = err.Error()
	}
	out := Webhook{
		ID: w.ID, URL: d.URL, Types: d.Types, Description: d.Description, State: w.State, CreatedAt: w.CreatedAt, CreatedBy: w.CreatedBy,
		ChangedAt: w.ChangedAt, ChangedBy: w.ChangedBy, Reason: w.Reason,
		Position: Position(w.Position.ReadTo), Waiting: len(w.Position.Pending), Delivered: w.Position.Delivered, DeliveredAt: w.Position.DeliveredAt,
		Failures: w.Position.Failures, FailingSince: w.Position.FailingSince, LastFailure: w.Position.LastFailure,
	}
	if w.FormerUntil.After(now) {
		out.FormerSecretUntil = w.FormerUntil
	}
	if len(w.Position.Pending) > 0 {
		out.Position = Position(slices.Min(w.Position.Pending) - 1)
	}
	return out
}

const (
	maxURL         = 2048
	maxDescription = 256
)

// validate returns a *FieldError for each invalid member, joined.
func (n *New) validate(allow []netip.Prefix) error {
	errs := []error{validateURL(n.URL, allow)}
	if n.Description != "" {
		errs = append(errs, validate.Text("description", n.Description, maxDescription))
		if redact.ContainsSecret(n.Description) {
			errs = append(errs, &refusal.FieldError{Field: "description", Problem: "looks like a secret, card or account number"})
		}
	}
	for i, t := range n.Types {
		switch {
		case !slices.Contains(events.Types(), t):
			errs = append(errs, &refusal.FieldError{Field: "types", Problem: fmt.Sprintf("%q is not a type of event", t)})
		case slices.Contains(n.Types[:i], t):
			errs = append(errs, &refusal.FieldError{Field: "types", Problem: fmt.Sprintf("%q is given twice", t)})
		}
	}
	if n.After != nil && *n.After < 0 {
		errs = append(errs, &refusal.FieldError{Field: "after", Problem: "is negative"})
	}
	return errors.Join(errs...)
}

// validateURL refuses what is never sent to. A name is resolved, and its address judged, at each
// connection.
func validateURL(text string, allow []netip.Prefix) error {
	refuse := func(problem string) error { return &refusal.FieldError{Field: "url", Problem: problem} }
	if text == "" || len(text) > maxURL || !isGraphicASCII(text) {
		return refuse(fmt.Sprintf("must be a URL of at most %d characters; characters outside ASCII must be escaped", maxURL))
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return refuse("is not a URL such as https://example.com/hooks")
	case !isPort(u):
		return refuse("has a port that is not from 1 to 65535")
	case u.Scheme != "https" && u.Scheme != "http":
		return refuse("must begin with https://")
	case u.Scheme == "http" && len(allow) == 0:
		return refuse("must begin with https://: http is for addresses that the operator has opened")
	case u.User != nil:
		return refuse("must not contain a user or password")
	case u.Fragment != "":
		return refuse("must not contain a fragment")
	case redact.ContainsSecret(text):
		return refuse("looks like it contains a secret; requests are signed, and receipts keep the URL")
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := webhookdelivery.CheckAddress(addr, allow, u.Scheme == "http"); err != nil {
			return refuse(err.Error())
		}
	}
	return nil
}

// isPort reports whether a URL has a port that exists, or none.
func isPort(u *url.URL) bool {
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u.Port() == "" || err == nil && port > 0
}

func isGraphicASCII(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
