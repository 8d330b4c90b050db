package postadjudication

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

// RuleChange makes a rule of a tenant, or takes the place of the one of its name.
type RuleChange struct {
	Tenant    string
	Rule      Rule   // whole
	Actor     string // who asks; required
	Reason    string // why; required, and told with every replay
	IfVersion *int64 // refused unless this is the present version, 0 when there must be none; nil sets it in any case
}

// RuleRemoval deletes a rule of a tenant.
type RuleRemoval struct {
	Tenant    string
	Name      string
	Actor     string // who asks; required
	Reason    string // why; required
	IfVersion *int64 // refused unless this is the present version; nil deletes it in any case
}

// RuleVersionError says that a rule is not, or no longer, of the version that a change
// expects.
type RuleVersionError struct {
	Expected int64
	Current  StoredRule
}

func (e *RuleVersionError) Error() string {
	return fmt.Sprintf("postadjudication: rule %s of %s is at version %d, not %d", e.Current.Name, e.Current.Tenant, e.Current.Version, e.Expected)
}

// ErrTooManyRules means that a tenant has as many rules as it can have.
var ErrTooManyRules = postgres.ErrTooManyRules

// errSameRule is what SetRule finds on the locked row.
var errSameRule = errors.New("postadjudication: the rule is set already")

// Rules lists the rules of a tenant, by name. One that only a newer program can read
// is left out, and not applied by this one.
func (s *Service) Rules(ctx context.Context, tenant string) ([]StoredRule, error) {
	if tenant == "" {
		return nil, &FieldError{Field: "tenant", Problem: "must be given"}
	}
	found, err := s.journal.Rules(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := make([]StoredRule, 0, len(found))
	for _, f := range found {
		r, err := parseStoredRule(f)
		if err != nil {
			s.journal.Warn(err)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

// SetRule makes or changes a rule, with its receipt in one commit, and gives it as it
// is then: every process applies it from its next round on, and the one before no
// more. To set what holds already changes nothing. Errors: *FieldError for bad input
// (joined, one per field), *RuleVersionError, ErrTooManyRules. After any other error it
// is not known whether it was set: look at the version.
func (s *Service) SetRule(ctx context.Context, q RuleChange) (StoredRule, error) {
	if err := errors.Join(requireText("tenant", q.Tenant, 128), requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024), q.Rule.Validate()); err != nil {
		return StoredRule{}, err
	}
	text, err := q.Rule.encode()
	if err != nil {
		return StoredRule{}, err
	}
	now, err := s.journal.UpdateRule(ctx, q.Tenant, q.Rule.Name, func(now postgres.Rule) (postgres.Rule, receipts.Draft, error) {
		if err := checkRuleVersion(q.IfVersion, now); err != nil {
			return now, receipts.Draft{}, err
		}
		if now.Exists() && now.Definition == string(text) {
			return now, receipts.Draft{}, errSameRule
		}
		next := postgres.Rule{Enabled: q.Rule.Enabled, Definition: string(text), Actor: q.Actor, Reason: cleanText(q.Reason, 1024), At: s.now()}
		changes, err := ruleChanges(now, string(text))
		return next, ruleReceipt(next, q.Rule.Name+": "+changes), err
	})
	if err != nil && !errors.Is(err, errSameRule) {
		return StoredRule{}, err
	}
	return parseStoredRule(now)
}

// DeleteRule deletes a rule, with its receipt in one commit, and gives it as it was.
// What it replayed stays counted: a rule that is made under its name goes on with it.
// ErrNotFound when the tenant has no such rule; else as SetRule.
func (s *Service) DeleteRule(ctx context.Context, q RuleRemoval) (StoredRule, error) {
	if err := errors.Join(requireText("tenant", q.Tenant, 128), requireText("name", q.Name, 64), requireIdentifier("actor", q.Actor, 128), requireText("reason", q.Reason, 1024)); err != nil {
		return StoredRule{}, err
	}
	var was postgres.Rule
	_, err := s.journal.UpdateRule(ctx, q.Tenant, q.Name, func(now postgres.Rule) (postgres.Rule, receipts.Draft, error) {
		was = now
		if !now.Exists() {
			return now, receipts.Draft{}, ErrNotFound
		}
		if err := checkRuleVersion(q.IfVersion, now); err != nil {
			return now, receipts.Draft{}, err
		}
		next := postgres.Rule{Deleted: true, Definition: now.Definition, Actor: q.Actor, Reason: cleanText(q.Reason, 1024), At: s.now()}
		return next, ruleReceipt(next, q.Name+": "+ruleDeleted), nil
	})
	if err != nil {
		return StoredRule{}, err
	}
	out, err := parseStoredRule(was)
	if err != nil { // a newer program made it; it is deleted all the same
		s.journal.Warn(err)
	}
	return out, nil
}

// checkRuleVersion refuses a change of another version than the present one.
func checkRuleVersion(version *int64, now postgres.Rule) error {
	present := now.Version
	if !now.Exists() {
		present = 0
	}
	if version == nil || *version == present {
		return nil
	}
	e := &RuleVersionError{Expected: *version, Current: StoredRule{Tenant: now.Tenant, Rule: Rule{Name: now.Name}}}
	if present > 0 {
		var err error
		if e.Current, err = parseStoredRule(now); err != nil {
			return err
		}
	}
	return e
}

func ruleReceipt(r postgres.Rule, changes string) receipts.Draft {
	return receipts.Draft{Actor: r.Actor, At: r.At, Payload: receipts.Payload{Rule: r.Definition, Changes: changes, Reason: r.Reason}}
}

// parseStoredRule reads a rule as it is kept.
func parseStoredRule(r postgres.Rule) (StoredRule, error) {
	out := StoredRule{Rule: Rule{Name: r.Name}, Tenant: r.Tenant, Version: r.Version, Actor: r.Actor, Reason: r.Reason, At: r.At}
	text := json.NewDecoder(strings.NewReader(r.Definition))
	text.DisallowUnknownFields()
	if err := text.Decode(&out.Rule); err != nil {
		return out, fmt.Errorf("postadjudication: rule %s of %s: %w", r.Name, r.Tenant, err)
	}
	if err := out.Validate(); err != nil {
		return out, fmt.Errorf("postadjudication: rule %s of %s: %w", r.Name, r.Tenant, err)
	}
	return out, nil
}

// ruleChanges tells what a rule has become, member by member.
func ruleChanges(now postgres.Rule, next string) (string, error) {
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
	for _, name := range sortedKeys(members) {
		if !bytes.Equal(before[name], after[name]) {
			all = append(all, name+" "+valueText(before[name])+" to "+valueText(after[name]))
		}
	}
	return strings.Join(all, "; "), nil
}
