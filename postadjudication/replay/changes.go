package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/postadjudication/internal/binding"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/validate"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/receipts"
)

// Change creates a rule of a tenant, or replaces the rule of the same name.
type Change struct {
	Rule      Rule   // the whole rule
	Reason    string // required; part of the reason of each replay
	IfVersion *int64 // refused unless it is the current version, 0 if there must be no rule; nil: any version
}

// Removal deletes a rule of a tenant.
type Removal struct {
	Name      string
	Reason    string // required
	IfVersion *int64 // refused unless it is the current version; nil: any version
}

// VersionError means that a rule does not have the version that a change
// expects.
type VersionError struct {
	Expected int64
	Current  StoredRule
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("replay: rule %s of %s is at version %d, not %d", e.Current.Name, e.Current.Tenant, e.Current.Version, e.Expected)
}

// ErrTooMany means that a tenant has the maximum number of rules.
var ErrTooMany = journal.ErrTooManyRules

// errUnchanged is the decision of Set that nothing changes.
var errUnchanged = errors.New("replay: the rule is set already")

// List returns the rules of a tenant, by name. A rule of a newer version that can't be read is
// left out, and this process does not apply it.
func (o Rules) List(ctx context.Context) ([]StoredRule, error) {
	if o.tenant == "" {
		return nil, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	}
	found, err := o.s.journal.Rules.List(ctx, o.tenant)
	if err != nil {
		return nil, err
	}
	out := make([]StoredRule, 0, len(found))
	for _, f := range found {
		r, err := parseStoredRule(f)
		if err != nil {
			o.s.journal.Warn(err)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// Set creates or changes a rule, with its receipt in one commit, and returns the rule in
// force. Every process applies it from its next round on, and no longer the former rule. Setting
// the same rule again changes nothing.
//
// Errors: *FieldError for bad input (joined, one per field), *VersionError, ErrTooMany.
// After any other error it is unknown whether the rule was set: read its version.
func (r Rules) Set(ctx context.Context, q Change) (StoredRule, error) {
	if err := errors.Join(validate.Change(r.tenant, r.actor, q.Reason), q.Rule.Validate()); err != nil {
		return StoredRule{}, err
	}
	text, err := q.Rule.encode()
	if err != nil {
		return StoredRule{}, err
	}
	now, err := r.s.journal.Rules.Update(ctx, r.tenant, q.Rule.Name, func(now journal.Rule) (journal.Rule, receipts.Draft, error) {
		if err := checkVersion(q.IfVersion, now); err != nil {
			return now, receipts.Draft{}, err
		}
		if now.Exists() && now.Definition == string(text) {
			return now, receipts.Draft{}, errUnchanged
		}
		next := journal.Rule{Enabled: q.Rule.Enabled, Definition: string(text), Actor: r.actor, Reason: validate.Clean(q.Reason, 1024), At: r.s.now()}
		changes, err := changesOf(now, string(text))
		return next, receiptOf(next, q.Rule.Name+": "+changes), err
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return StoredRule{}, err
	}
	return parseStoredRule(now)
}

// Delete deletes a rule, with its receipt in one commit, and returns it as it was. Its
// replays stay counted: a later rule of the same name continues the count. Errors: ErrNotFound
// if the tenant has no such rule; otherwise those of Set.
func (r Rules) Delete(ctx context.Context, q Removal) (StoredRule, error) {
	if err := errors.Join(validate.Change(r.tenant, r.actor, q.Reason), validate.Text("name", q.Name, 64)); err != nil {
		return StoredRule{}, err
	}
	var was journal.Rule
	_, err := r.s.journal.Rules.Update(ctx, r.tenant, q.Name, func(now journal.Rule) (journal.Rule, receipts.Draft, error) {
		was = now
		if !now.Exists() {
			return now, receipts.Draft{}, refusal.ErrNotFound
		}
		if err := checkVersion(q.IfVersion, now); err != nil {
			return now, receipts.Draft{}, err
		}
		next := journal.Rule{Deleted: true, Definition: now.Definition, Actor: r.actor, Reason: validate.Clean(q.Reason, 1024), At: r.s.now()}
		return next, receiptOf(next, q.Name+": "+binding.RuleDeleted), nil
	})
	if err != nil {
		return StoredRule{}, err
	}
	out, err := parseStoredRule(was)
	if err != nil { // made by a newer version; it is deleted all the same
		r.s.journal.Warn(err)
	}
	return out, nil
}

// checkVersion refuses a change that expects another version than the current one.
func checkVersion(version *int64, now journal.Rule) error {
	present := now.Version
	if !now.Exists() {
		present = 0
	}
	if version == nil || *version == present {
		return nil
	}
	e := &VersionError{Expected: *version, Current: StoredRule{Tenant: now.Tenant, Rule: Rule{Name: now.Name}}}
	if present > 0 {
		var err error
		if e.Current, err = parseStoredRule(now); err != nil {
			return err
		}
	}
	return e
}

func receiptOf(r journal.Rule, changes string) receipts.Draft {
	return receipts.Draft{Actor: r.Actor, At: r.At, Payload: receipts.Payload{Rule: r.Definition, Changes: changes, Reason: r.Reason}}
}

// parseStoredRule parses a stored rule.
func parseStoredRule(r journal.Rule) (StoredRule, error) {
	out := StoredRule{Rule: Rule{Name: r.Name}, Tenant: r.Tenant, Version: r.Version, Actor: r.Actor, Reason: r.Reason, At: r.At}
	text := json.NewDecoder(strings.NewReader(r.Definition))
	text.DisallowUnknownFields()
	if err := text.Decode(&out.Rule); err != nil {
		return out, fmt.Errorf("replay: rule %s of %s: %w", r.Name, r.Tenant, err)
	}
	if err := out.Validate(); err != nil {
		return out, fmt.Errorf("replay: rule %s of %s: %w", r.Name, r.Tenant, err)
	}
	return out, nil
}

// changesOf returns the differences of a rule, member by member.
func changesOf(now journal.Rule, next string) (string, error) {
	if !now.Exists() {
		return "made", nil
	}
	var before, after map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal([]byte(now.Definition), &before), json.Unmarshal([]byte(next), &after)); err != nil {
		return "", err
	}
	members := map[string]bool{}
	for name := range before {
		members[name] = true
	}
	for name := range after {
		members[name] = true
	}
	valueText := func(m json.RawMessage) string {
		if m == nil {
			return "none"
		}
		return string(m)
	}
	var all []string
	for _, name := range validate.SortedKeys(members) {
		if !bytes.Equal(before[name], after[name]) {
			all = append(all, name+" "+valueText(before[name])+" to "+valueText(after[name]))
		}
	}
	return strings.Join(all, "; "), nil
}

// Version is one change of a rule, as its receipt states it.
type Version struct {
	StoredRule
	Deleted bool   `json:"deleted,omitempty"` // by this change; the rule is the deleted one
	Changes string `json:"changes"`           // differences from the version before
	Receipt string `json:"receipt_id"`
}

// historyPage is how many receipts of a tenant's rules are read at once.
const historyPage = 1000

// History returns at most limit changes of a tenant's rule in order, from their receipts,
// beginning after a version. A rule that was deleted and created again continues its versions. It
// returns none if there never was such a rule. If this program can't read the rule in a receipt,
// only its name and the receipt's other members are set.
func (o Rules) History(ctx context.Context, name string, after int64, limit int) ([]Version, error) {
	switch {
	case o.tenant == "":
		return nil, &refusal.FieldError{Field: "tenant", Problem: "must be given"}
	case limit < 1:
		return nil, &refusal.FieldError{Field: "limit", Problem: "must be at least 1"}
	}
	caseID, found, err := o.s.journal.Operations.Log(ctx, o.tenant, journal.RuleLog)
	if err != nil || !found {
		return nil, err
	}
	var out []Version
	version := int64(0)
	for place := (journal.TrailCursor{Case: caseID}); ; {
		trail, err := o.s.journal.Receipts.Trail(ctx, o.tenant, caseID, place, historyPage)
		if err != nil || len(trail) == 0 {
			return out, err
		}
		for _, r := range trail {
			place.Seq = r.Seq
			change, matches, err := versionFrom(r, name)
			if err != nil {
				return nil, err
			}
			if !matches {
				continue
			}
			if version++; version <= after {
				continue
			}
			change.Version = version
			if out = append(out, change); len(out) == limit {
				return out, nil
			}
		}
	}
}

// versionFrom reads a receipt of a tenant's rules; matches reports whether it is about the rule
// name.
func versionFrom(r receipts.Receipt, name string) (version Version, matches bool, err error) {
	p, err := r.Payload()
	if err != nil {
		return version, false, err
	}
	changes, matches := strings.CutPrefix(p.Changes, name+": ")
	if !matches || r.Subtype != receipts.RuleChanged {
		return version, false, nil
	}
	version = Version{Deleted: changes == binding.RuleDeleted, Changes: changes, Receipt: r.ID()}
	version.Tenant, version.Actor, version.Reason, version.At = r.Tenant, r.Actor, p.Reason, r.At
	if json.Unmarshal([]byte(p.Rule), &version.Rule) != nil {
		version.Rule = Rule{}
	}
	version.Name = name
	return version, true, nil
}
