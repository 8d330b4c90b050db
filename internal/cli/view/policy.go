package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/recourse-dev/recourse/internal/cli/screen"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/retrypolicy"
)

// Policies writes the retry policies of families.
func Policies(s *screen.Screen, policies []postadjudication.FamilyPolicy) error {
	rows := make([][]string, len(policies))
	for i, p := range policies {
		by := "as configured"
		if p.Version > 0 {
			by = fmt.Sprintf("version %d, %s: %s", p.Version, p.Actor, p.Reason)
			if p.AsConfigured {
				by = "as configured again, " + by
			}
		}
		rows[i] = append([]string{p.Family}, append(PolicyCells(p.Policy), by)...)
	}
	s.Table([]screen.Column{{Name: "Family"}, {Name: "Attempts", Right: true}, {Name: "Delays"}, {Name: "Never again", Wraps: true}, {Name: "Set", Wraps: true}}, rows)
	return s.Err()
}

// PolicyCells are how often, how fast and what not, for people.
func PolicyCells(p retrypolicy.Policy) []string {
	delays := fmt.Sprintf("%s x%s up to %s", p.BaseDelay, strconv.FormatFloat(p.Coefficient, 'g', -1, 64), p.MaxDelay)
	if p.Jitter > 0 {
		delays += fmt.Sprintf(", %g%% either way", 100*p.Jitter)
	}
	return []string{strconv.Itoa(p.MaxRetryAttempts), delays, strings.Join(p.NonRetryable, ", ")}
}

// PolicyHistory writes the versions of the policy of a family.
func PolicyHistory(s *screen.Screen, family string, versions []postadjudication.PolicyVersion) error {
	if len(versions) == 0 {
		s.Text("The policy of %s was not changed: it is as configured.", family)
		return s.Err()
	}
	rows := make([][]string, len(versions))
	for i, v := range versions {
		rows[i] = []string{strconv.FormatInt(v.Version, 10), v.At.Format(time.RFC3339), v.Actor, v.Changes, v.Reason}
	}
	s.Table([]screen.Column{{Name: "#", Right: true}, {Name: "At"}, {Name: "By"}, {Name: "What", Wraps: true}, {Name: "Why", Wraps: true}}, rows)
	return s.Err()
}
