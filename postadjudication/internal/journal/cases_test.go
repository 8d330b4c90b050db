package journal_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/recourse-dev/recourse/internal/testkit"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal"
	"github.com/recourse-dev/recourse/postadjudication/internal/journal/journaltest"
	"github.com/recourse-dev/recourse/receipts"
	"github.com/recourse-dev/recourse/settlement"
)

// A list of cases has the settlements that their snapshots have, and each part of its filter leaves out what it names.
func TestAListOfCasesHasTheirSettlements(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	j := journaltest.Open(t, testkit.Migrated(t))
	reserved, paid := mustReserve(t, j, "esc", "reserved", 4), mustReserve(t, j, "esc", "paid", 6)
	applyState(t, j, paid, func(s *settlement.State) {
		*s = settlement.State{
			Outcome: s.Outcome, Progression: settlement.PartiallySettled, ReasonCode: settlement.Escalate, Reason: "a part came back", Lifecycle: settlement.ReEscalated,
			Generation: s.Generation, Asked: 6, Moved: 3, Released: 5, Returned: 2,
		}
	})
	inOrder, want := []journal.Snapshot{reserved, paid}, map[string]settlement.State{}
	slices.SortFunc(inOrder, func(a, b journal.Snapshot) int { return strings.Compare(a.Case.ID.String(), b.Case.ID.String()) })
	for _, s := range []journal.Snapshot{reserved, paid} {
		now, err := j.Cases.Snapshot(ctx, s.Run.ID)
		if err != nil {
			t.Fatal(err)
		}
		want[now.Case.Subject] = now.Case.State
	}
	for name, c := range map[string]struct {
		tenant   string
		filter   journal.CaseFilter
		after    receipts.CaseID
		subjects []string
	}{
		"all":              {tenant: "acme", subjects: []string{inOrder[0].Case.Subject, inOrder[1].Case.Subject}},
		"another tenant":   {tenant: "other"},
		"after the first":  {tenant: "acme", after: inOrder[0].Case.ID, subjects: []string{inOrder[1].Case.Subject}},
		"one transaction":  {tenant: "acme", filter: journal.CaseFilter{Subject: "paid"}, subjects: []string{"paid"}},
		"with reservation": {tenant: "acme", filter: journal.CaseFilter{Reserved: true}, subjects: []string{"reserved"}},
		"paid in part":     {tenant: "acme", filter: journal.CaseFilter{States: []string{string(settlement.PartiallySettled)}}, subjects: []string{"paid"}},
	} {
		rows, err := j.Cases.List(ctx, c.tenant, c.filter, c.after, 10)
		if err != nil {
			t.Fatal(err)
		}
		var subjects []string
		for _, row := range rows {
			subjects = append(subjects, row.Subject)
			if row.State != want[row.Subject] || row.Kind != journal.KindSettlement || row.Reference != "esc" {
				t.Errorf("%s: %+v, want %+v", name, row, want[row.Subject])
			}
		}
		if !slices.Equal(subjects, c.subjects) {
			t.Errorf("%s: %v, want %v", name, subjects, c.subjects)
		}
	}
}
