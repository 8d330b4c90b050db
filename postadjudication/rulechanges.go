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

// RuleVersion is one change of a rule, as its receipt tells it.
type RuleVersion struct {
	StoredRule
	Deleted bool   `json:"deleted,omitempty"` // by this change; the rule is as it was before
	Changes string `json:"changes"`           // what became of the one before
	Receipt string `json:"receipt_id"`
}

// ruleDeleted is what the receipt of a deletion says of the rule, behind its name.
const ruleDeleted = "deleted"

// ruleHistoryPage is how many receipts of a tenant's rules are read at once.
const ruleHistoryPage = 1000

// RuleHistory reads the changes of a tenant's rule off their receipts, the first one
// first, after a version, at most limit of them. A rule that was deleted and made again
// goes on with its versions; one that never was has none. What only a newer program can
// read of a rule is left out: its name, and what the receipt says, are there.
func (s *Service) RuleHistory(ctx context.Context, tenant, name string, after int64, limit int) ([]RuleVersion, error) {
	switch {
	case tenant == "":
		return nil, &FieldError{Field: "tenant", Problem: "must be given"}
	case limit < 1:
		return nil, &FieldError{Field: "limit", Problem: "must be at least 1"}
	}
	caseID, found, err := s.journal.OperationLogCase(ctx, tenant, postgres.RuleLog)
	if err != nil || !found {
		return nil, err
	}
	var out []RuleVersion
	version := int64(0)
	for place := (postgres.TrailPosition{Case: caseID}); ; {
		trail, err := s.journal.Trail(ctx, tenant, caseID, place, ruleHistoryPage)
		if err != nil || len(trail) == 0 {
			return out, err
		}
		for _, r := range trail {
			place.Seq = r.Seq
			change, own, err := ruleVersionFrom(r, name)
			if err != nil {
				return nil, err
			}
			if !own {
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

// ruleVersionFrom reads a receipt of a tenant's rules; own reports whether it is about the one
// of a name.
func ruleVersionFrom(r receipts.Receipt, name string) (version RuleVersion, own bool, err error) {
	p, err := r.Payload()
	if err != nil {
		return version, false, err
	}
	changes, own := strings.CutPrefix(p.Changes, name+": ")
	if !own || r.Subtype != receipts.RuleChanged {
		return version, false, nil
	}
	version = RuleVersion{Deleted: changes == ruleDeleted, Changes: changes, Receipt: r.ID()}
	version.Tenant, version.Actor, version.Reason, version.At = r.Tenant, r.Actor, p.Reason, r.At
	if json.Unmarshal([]byte(p.Rule), &version.Rule) != nil {
		version.Rule = Rule{}
	}
	version.Name = name
	return version, true, nil
}
