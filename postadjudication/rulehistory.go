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
	StandingRule
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
	kase, found, err := s.journal.RegisterCase(ctx, tenant, postgres.RuleRegister)
	if err != nil || !found {
		return nil, err
	}
	var out []RuleVersion
	version := int64(0)
	for place := (postgres.Place{Case: kase}); ; {
		trail, err := s.journal.Trail(ctx, tenant, kase, place, ruleHistoryPage)
		if err != nil || len(trail) == 0 {
			return out, err
		}
		for _, r := range trail {
			place.Seq = r.Seq
			told, own, err := ruleTold(r, name)
			if err != nil {
				return nil, err
			}
			if !own {
				continue
			}
			if version++; version <= after {
				continue
			}
			told.Version = version
			if out = append(out, told); len(out) == limit {
				return out, nil
			}
		}
	}
}

// ruleTold reads a receipt of a tenant's rules; own reports whether it is about the one
// of a name.
func ruleTold(r receipts.Receipt, name string) (told RuleVersion, own bool, err error) {
	p, err := r.Payload()
	if err != nil {
		return told, false, err
	}
	changes, own := strings.CutPrefix(p.Changes, name+": ")
	if !own || r.Subtype != receipts.RuleChanged {
		return told, false, nil
	}
	told = RuleVersion{Deleted: changes == ruleDeleted, Changes: changes, Receipt: r.ID()}
	told.Tenant, told.Actor, told.Reason, told.At = r.Tenant, r.Actor, p.Reason, r.At
	if json.Unmarshal([]byte(p.Rule), &told.Rule) != nil {
		told.Rule = Rule{}
	}
	told.Name = name
	return told, true, nil
}
