package validate

import "errors"

// Change refuses a change without a tenant, an actor or a reason: one *FieldError for
// each, joined.
func Change(tenant, actor, reason string) error {
	return errors.Join(KnownID("tenant", tenant, 128), NoSecret("tenant", tenant), Actor(actor, reason))
}

// Actor refuses a change without an actor or a reason. It is for changes that first find their
// subject in the tenant: an invalid tenant has none, so that the tenant needs no check.
func Actor(actor, reason string) error {
	return errors.Join(Identifier("actor", actor, 128), Text("reason", reason, 1024))
}
