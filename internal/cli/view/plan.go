package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/postadjudication/bulk"
	"github.com/recourse-dev/recourse/retrypolicy"
	"github.com/recourse-dev/recourse/settlement"
)

// maxReturnsShown is how many returned payments of a plan are shown.
const maxReturnsShown = 20

// PlanItem returns the name of an item of a plan: case or letter.
func PlanItem(b bulk.Plan) string {
	if b.Action == bulk.Free || b.Action == bulk.Return {
		return "case"
	}
	return "letter"
}

// movedSum returns the sum of a planned finding. A plan of an older version does not state the currency: it is that of the
// plan's money, if there is one.
func movedSum(b bulk.Plan, f *bulk.PlannedFinding) string {
	currency := f.Currency
	if currency == "" && len(b.Money) == 1 {
		for currency = range b.Money {
		}
	}
	if currency == "" {
		return fmt.Sprintf("%d in minor units", f.Moved)
	}
	return settlement.Money{Minor: f.Moved, Currency: currency}.String()
}

// Plan writes a plan and its progress.
func Plan(s *screen.Screen, b bulk.Plan) {
	rows := [][]string{{"plan", b.ID.String()}, {"action", string(b.Action)}, {"state", string(b.State)}, {"planned by", b.Actor + ": " + b.Reason}}
	switch m := b.Spec.Move; {
	case b.Action == bulk.People:
		rows = append(rows, []string{"sets people to", strconv.Itoa(b.Spec.People)})
	case m != nil:
		rows = append(rows, []string{"transaction", m.Transaction}, []string{"newest run", m.Run.String()}, []string{"target", m.From + ", and " + m.Target + " for the next generation"})
	default:
		rows = append(rows, []string{PlanItem(b) + "s", fmt.Sprintf("%d, of which %d were ready when it was planned", b.Items, b.Ready)}, []string{"money", shell.Amounts(b.Money)})
		rows = append(rows, unchanged(b)...)
	}
	if p, err := retrypolicy.Parse(b.Spec.Policy); b.Spec.Policy != "" && err == nil {
		cells := PolicyCells(p)
		rows = append(rows, []string{"policy", cells[0] + " attempts, " + cells[1]})
	}
	if b.Spec.Queue != "" {
		rows = append(rows, []string{"to queue", b.Spec.Queue})
	}
	if as := marks(b.Spec); as != "" {
		rows = append(rows, []string{"marks as", as})
	}
	if by := selectedBy(b.Spec); by != "" {
		rows = append(rows, []string{"selected by", by})
	}
	if b.Spec.Where != "" {
		rows = append(rows, []string{"condition", b.Spec.Where}, []string{"scanned", shell.Plural(int(b.Scanned), "letter") + "." + LeftOut(int(b.Undecided))})
	}
	for _, gate := range slices.Sorted(maps.Keys(b.Refused)) {
		rows = append(rows, []string{"refused by", fmt.Sprintf("%s: %d", gate, b.Refused[gate])})
	}
	rows = append(rows, findingRows(b)...)
	for i, r := range b.Spec.Returns {
		if i == maxReturnsShown {
			rows = append(rows, []string{"returned", fmt.Sprintf("and %d more, see --json", len(b.Spec.Returns)-i)})
			break
		}
		returned := fmt.Sprintf("%s of transaction %s, %s", r.Amount, r.Transaction, r.Reference)
		if !r.ReturnedAt.IsZero() {
			returned += ", on " + r.ReturnedAt.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{"returned", returned + "; run " + r.Run.String() + " had paid it"})
	}
	if b.Spec.Reference != "" {
		rows = append(rows, []string{"reference", b.Spec.Reference})
	}
	switch {
	case b.Incident != "":
		rows = append(rows, []string{"people", "1, by break-glass for " + b.Incident + ": " + b.IncidentReason})
	case b.People > 0:
		rows = append(rows, []string{"people", strconv.Itoa(b.People)})
	}
	if b.StartedBy != "" {
		p := b.Progress
		rows = append(rows, []string{"started by", b.StartedBy},
			[]string{"progress", fmt.Sprintf("%d done, %d refused, %d changed since the plan, %d failed, %d to do", p.Done, p.Refused, p.PlanStale, p.Failed, p.Pending)})
	}
	if len(b.Forks) > 0 {
		var became []string
		for _, state := range slices.Sorted(maps.Keys(b.Forks)) {
			became = append(became, fmt.Sprintf("%d %s", b.Forks[state], state))
		}
		rows = append(rows, []string{"forks", strings.Join(became, ", ")})
	}
	if b.ChangedBy != "" {
		rows = append(rows, []string{"changed by", b.ChangedBy + ": " + b.ChangedReason})
	}
	s.Table([]screen.Column{{Name: "About"}, {Name: "Now", Wraps: true}}, rows)
	review(s, b)
	s.Command("hash " + b.Hash) // below the table, where nothing breaks it
}

// unchanged returns what is left of a plan some of whose items changed since it was made; nothing if none did.
func unchanged(b bulk.Plan) [][]string {
	if b.Review == nil || len(b.Review.Changed) == 0 {
		return nil
	}
	return [][]string{{"ready now", StillReady(b)}}
}

// StillReady returns how many items of a plan that nobody has started are as they were when it was made, with their money.
func StillReady(b bulk.Plan) string {
	of := ""
	if b.Items > bulk.MaxReviewed {
		of = fmt.Sprintf(" of the first %d", bulk.MaxReviewed)
	}
	return fmt.Sprintf("%d%s, with %s reserved", b.Review.Ready, of, shell.Amounts(b.Review.Money))
}

// review writes what the items of a plan are that nobody has started. It writes nothing of a single item that is as it was planned, which
// the other rows describe.
func review(s *screen.Screen, b bulk.Plan) {
	r := b.Review
	if r == nil {
		return
	}
	if b.Items > 1 && len(r.Causes) > 0 {
		rows := make([][]string, len(r.Causes))
		for i, c := range r.Causes {
			rows[i] = []string{strconv.FormatInt(c.Items, 10), shell.Amounts(c.Money), c.Signature}
		}
		s.Title("Causes")
		if b.Items > bulk.MaxReviewed {
			s.Text("Of the first %d items:", bulk.MaxReviewed)
		}
		s.Table([]screen.Column{{Name: "Number", Right: true}, {Name: "Reserved", Wraps: true}, {Name: "Cause", Wraps: true}}, rows)
		if r.Others > 0 {
			s.Text("There are %d more causes.", r.Others)
		}
		s.Title("Largest")
		itemTable(s, r.Largest)
		differences(s, r.Differs)
	}
	var changed []string
	for _, state := range slices.Sorted(maps.Keys(r.Changed)) {
		changed = append(changed, fmt.Sprintf("%d now %s", r.Changed[state], state))
	}
	if b.KeptUntil != nil {
		s.Text("Start it by %s: later it may be deleted.", b.KeptUntil.UTC().Format(time.RFC3339))
	}
	if len(changed) > 0 {
		s.Title("Changed since it was planned, and left as they are: %s", strings.Join(changed, ", "))
		itemTable(s, r.ChangedItems)
	}
}

// differences writes what differs from the rest of a plan.
func differences(s *screen.Screen, differ []bulk.Difference) {
	for _, d := range differ {
		s.Title("Other %s", d.By)
		differ := shell.Plural(int(d.Items), "item") + ", reserved " + shell.Amounts(d.Money)
		if d.Median != nil {
			s.Text("The median is %s. Above 10 times as much: %s.", d.Median, differ)
		} else {
			s.Text("More than half of the items have %s. The others: %s.", cmp.Or(d.Usual, "none"), differ)
		}
		itemTable(s, d.Examples)
	}
}

// findingRows returns what the finding of a plan states; nothing for a plan without one.
func findingRows(b bulk.Plan) (rows [][]string) {
	f := b.Spec.Finding
	if f == nil {
		return nil
	}
	found := fmt.Sprintf("%s, %s moved, %s", f.Class, movedSum(b, f), f.Reference)
	if f.Lookup {
		found += strings.TrimSuffix(", as the escrow service answered that the planner named: "+f.LookupURL, ": ")
	}
	rows = append(rows, []string{"transaction", f.Transaction}, []string{"finding", found})
	if f.OtherAmount {
		rows = append(rows, []string{"differs", "another sum was moved than the decision had left to move"})
	}
	if f.Contradicts != "" {
		rows = append(rows, []string{"contradicts", f.Contradicts})
	}
	return rows
}

// Plans writes a list of plans.
func Plans(s *screen.Screen, page bulk.Page) error {
	if len(page.Bulks) == 0 {
		s.Text("No plans.")
		return s.Err()
	}
	rows := make([][]string, len(page.Bulks))
	for i, b := range page.Bulks {
		rows[i] = []string{b.ID.String(), b.PlannedAt.UTC().Format("2006-01-02 15:04:05"), string(b.Action), string(b.State), fmt.Sprintf("%d of %d", b.Progress.Done, b.Items), shell.Amounts(b.Money), b.Actor + ": " + b.Reason}
	}
	s.Table([]screen.Column{{Name: "Plan"}, {Name: "Planned (UTC)"}, {Name: "Action"}, {Name: "State"}, {Name: "Done", Right: true}, {Name: "Reserved", Wraps: true}, {Name: "By", Wraps: true}}, rows)
	if page.More {
		s.Text("There are more: --after %s", page.Next)
	}
	return s.Err()
}

// PlanItems writes the letters of a plan with their results.
func PlanItems(s *screen.Screen, page bulk.ItemPage) error {
	if len(page.Items) == 0 {
		s.Text("No such letters.")
		return s.Err()
	}
	itemTable(s, page.Items)
	if page.More {
		s.Text("There are more: --after %s", page.Next)
	}
	return s.Err()
}

func itemTable(s *screen.Screen, items []bulk.Item) {
	rows := make([][]string, len(items))
	for i, item := range items {
		result, money, age := string(item.Outcome), "-", "-"
		if item.Gate != "" {
			result += " by " + string(item.Gate)
		}
		if item.ChangedTo != "" {
			result += ", changed: now " + item.ChangedTo
		}
		if item.WaitsFor != "" {
			result += ": " + item.WaitsFor.Meaning()
		}
		if !item.NewRun.IsZero() {
			result += ", as run " + item.NewRun.String()
		}
		if item.Error != "" {
			result += ": " + item.Error
		}
		if item.Currency != "" {
			money = settlement.Money{Minor: item.Amount, Currency: item.Currency}.String()
		}
		if !item.DeadAt.IsZero() {
			age = shell.Span(item.Age.String())
		}
		rows[i] = []string{
			strconv.FormatInt(item.Position, 10), item.Subject, cmp.Or(item.Escrow, "-"), cmp.Or(string(item.Adjudication), "-"), item.Run.String(), money, age, item.Cause, result,
		}
	}
	s.Table([]screen.Column{
		{Name: "#", Right: true}, {Name: "Transaction"}, {Name: "Escrow"}, {Name: "Outcome"}, {Name: "Run"}, {Name: "Reserved", Right: true}, {Name: "Age", Right: true},
		{Name: "Cause", Wraps: true}, {Name: "Result", Wraps: true},
	}, rows)
}

// LeftOut returns how many letters a condition could not be evaluated for; empty for 0.
func LeftOut(undecided int) string {
	if undecided == 0 {
		return ""
	}
	return " " + shell.Plural(undecided, "letter") + " left out, for which the condition could not be evaluated."
}
