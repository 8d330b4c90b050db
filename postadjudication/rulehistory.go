package postadjudication

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/recourse-dev/recourse/internal/postgres"
	"github.com/recourse-dev/recourse/receipts"
)

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
