package postadjudication

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/recourse-dev/recourse/background"
	"github.com/recourse-dev/recourse/internal/postgres"
)

// bulksPage is how many plans a page of Bulks has.
const bulksPage = 100

// BulkPage is a part of the list of plans.
type BulkPage struct {
	Bulks []Bulk `json:"bulks"`
	Next  string `json:"next,omitempty"` // asks for what follows
	More  bool   `json:"more"`
}

// BulkItemPage is a part of the letters of a plan.
type BulkItemPage struct {
	Items []BulkItem `json:"items"`
	Next  string     `json:"next,omitempty"` // asks for what follows
	More  bool       `json:"more"`
}

// Bulk tells of a plan of a tenant, and how far it has got. ErrNotFound when the
// tenant has none such.
func (s *Service) Bulk(ctx context.Context, tenant string, id uuid.UUID) (Bulk, error) {
	b, err := s.findBulk(ctx, tenant, id)
	if err != nil {
		return Bulk{}, err
	}
	out, err := s.withCounts(ctx, b)
	if err == nil && out.Action == BulkFork && out.Progress.Done > 0 {
		out.Forks, err = s.journal.CountBulkForks(ctx, id)
	}
	return out, err
}

func (s *Service) findBulk(ctx context.Context, tenant string, id uuid.UUID) (postgres.BulkPlan, error) {
	if tenant == "" {
		return postgres.BulkPlan{}, ErrNotFound
	}
	return s.journal.FindBulkPlan(ctx, tenant, id)
}

// withCounts adds the counts to a plan.
func (s *Service) withCounts(ctx context.Context, b postgres.BulkPlan) (Bulk, error) {
	counts, err := s.journal.BulkCounts(ctx, b.ID)
	if err != nil {
		return Bulk{}, err
	}
	spec, err := specOf(b)
	if err != nil {
		return Bulk{}, err
	}
	out := bulkOf(b, spec, counts)
	if b.StartedAt.IsZero() && needsTwoPeople(&b) {
		out.People, err = s.requiredPeople(ctx, b.Tenant)
	}
	return out, err
}

func specOf(b postgres.BulkPlan) (spec BulkSpec, err error) {
	if err := json.Unmarshal([]byte(b.Request), &spec); err != nil {
		return spec, fmt.Errorf("postadjudication: bulk plan %s: %w", b.ID, err)
	}
	return spec, nil
}

// Bulks lists the plans of a tenant, newest first, a page at a time. cursor is
// BulkPage.Next of the page before, or empty.
func (s *Service) Bulks(ctx context.Context, tenant, cursor string) (BulkPage, error) {
	if tenant == "" {
		return BulkPage{}, &FieldError{Field: "tenant", Problem: "must be given"}
	}
	var before uuid.UUID
	if cursor != "" {
		var err error
		if before, err = uuid.Parse(cursor); err != nil || before == (uuid.UUID{}) {
			return BulkPage{}, &FieldError{Field: "cursor", Problem: "must be the one that the page before gave"}
		}
	}
	found, err := s.journal.BulkPlans(ctx, tenant, before, bulksPage+1)
	if err != nil {
		return BulkPage{}, err
	}
	page := BulkPage{Bulks: []Bulk{}, More: len(found) > bulksPage}
	for _, b := range found[:min(len(found), bulksPage)] {
		plan, err := s.withCounts(ctx, b)
		if err != nil {
			return BulkPage{}, err
		}
		page.Bulks = append(page.Bulks, plan)
		page.Next = b.ID.String()
	}
	if !page.More {
		page.Next = ""
	}
	return page, nil
}

// BulkItems lists the letters of a plan in the order in which they are worked on.
// outcome selects those with an outcome, such as done, pending, or refused; refused
// with a colon and a gate selects those of one gate; empty all. cursor is
// BulkItemPage.Next of the page before, or empty.
func (s *Service) BulkItems(ctx context.Context, tenant string, id uuid.UUID, cursor string, limit int, outcome string) (BulkItemPage, error) {
	if limit < 1 || limit > maxLetters {
		return BulkItemPage{}, &FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", maxLetters)}
	}
	word, err := storedOutcome(outcome)
	if err != nil {
		return BulkItemPage{}, err
	}
	after := int64(0)
	if cursor != "" {
		if after, err = strconv.ParseInt(cursor, 10, 64); err != nil || after < 1 {
			return BulkItemPage{}, &FieldError{Field: "cursor", Problem: "must be the one that the page before gave"}
		}
	}
	b, err := s.findBulk(ctx, tenant, id)
	if err != nil {
		return BulkItemPage{}, err
	}
	found, err := s.journal.BulkItems(ctx, id, word, after, limit+1)
	if err != nil {
		return BulkItemPage{}, err
	}
	page := BulkItemPage{Items: []BulkItem{}, More: len(found) > limit}
	for _, i := range found[:min(len(found), limit)] {
		item := itemOf(i)
		if item.WaitsFor, err = s.itemWaitsFor(ctx, b, item); err != nil {
			return BulkItemPage{}, err
		}
		page.Items = append(page.Items, item)
		page.Next = strconv.FormatInt(i.Position, 10)
	}
	if !page.More {
		page.Next = ""
	}
	return page, nil
}

// itemWaitsFor is the gate that an item of a running plan waits for; empty when it waits for
// its turn, or has an outcome.
func (s *Service) itemWaitsFor(ctx context.Context, b postgres.BulkPlan, i BulkItem) (Gate, error) {
	if b.State != BulkRunning || BulkAction(b.Action) != BulkFinding || i.Outcome != OutcomePending {
		return "", nil
	}
	seen, err := s.journal.Snapshot(ctx, i.Run)
	if err == nil && seen.Run.State == background.Running {
		return GateRunning, nil
	}
	return "", err
}

// storedOutcome is an outcome as the journal has it.
func storedOutcome(outcome string) (string, error) {
	switch o, gate := splitOutcome(outcome); {
	case outcome == "":
		return "", nil
	case o == OutcomeRefused && gate == "":
		return string(OutcomeRefused) + ":", nil
	case o == OutcomeRefused && isPlainText(outcome) && len(outcome) < 64:
		return outcome, nil
	case gate != "":
	case o == OutcomePending:
		return postgres.NoOutcome, nil
	case o == OutcomeDone || o == OutcomePlanStale || o == OutcomeFailed:
		return outcome, nil
	}
	return "", &FieldError{Field: "outcome", Problem: "must be one of pending, done, refused, refused:<gate>, plan_stale, failed"}
}

func splitOutcome(word string) (BulkOutcome, Gate) {
	outcome, gate, _ := strings.Cut(word, ":")
	return BulkOutcome(outcome), Gate(gate)
}

func itemOf(i postgres.BulkItem) BulkItem {
	out := BulkItem{Position: i.Position, Run: i.Run, Subject: i.Subject, Amount: i.Amount, Currency: i.Currency, Planned: Gate(i.Gate), Outcome: OutcomePending, NewRun: i.NewRun, Error: i.Error}
	if i.Outcome != "" {
		out.Outcome, out.Gate = splitOutcome(i.Outcome)
	}
	return out
}
