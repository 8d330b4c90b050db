package spec

import (
	"encoding/json"
	"regexp"
	"time"
)

// Rule replays dead letters by itself.
type Rule struct {
	Name       string
	Filter     Filter
	Delay      time.Duration // after the job was discarded; may be 0
	MaxReplays int           // of one job by this rule
	Enabled    bool
}

// maxReplays bounds Rule.MaxReplays.
const maxReplays = 100

var ruleNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

type ruleNames struct {
	Name       json.RawMessage `json:"name"`
	Filter     json.RawMessage `json:"filter"`
	Delay      json.RawMessage `json:"delay"`
	MaxReplays json.RawMessage `json:"max_replays"`
	Enabled    json.RawMessage `json:"enabled"`
}

// ParseRule reads a rule. All members but enabled are required: nothing is replayed without a limit. A rule
// that does not say that it is enabled is not. The error is an *Error.
func ParseRule(body []byte) (Rule, error) {
	r, wrong := parseBody(body, ruleNames{})
	if wrong != nil {
		return Rule{}, wrong
	}
	r.closed("a rule", "name", "filter", "delay", "max_replays", "enabled")
	for _, name := range []string{"name", "filter", "delay", "max_replays"} {
		if _, given := r.get(name); !given {
			r.wrong(name, "is missing")
		}
	}
	var rule Rule
	if rule.Name, _ = r.text("name", MaxBody); !ruleNamePattern.MatchString(rule.Name) {
		r.wrong("name", "must be 1 to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit")
	}
	rule.Filter = r.filter()
	if delay, given := r.text("delay", MaxBody); given {
		d, err := ParseDuration(delay)
		if err != nil {
			r.wrong("delay", "%s", err)
		}
		rule.Delay = d
	}
	n, _ := r.whole("max_replays", 1, maxReplays)
	rule.MaxReplays = int(n)
	rule.Enabled, _ = r.flag("enabled")
	return rule, r.failed()
}
