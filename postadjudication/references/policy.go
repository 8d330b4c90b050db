package references

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/recourse-dev/recourse/internal/strictjson"
	"github.com/recourse-dev/recourse/settlement"
)

// Bounds of a policy.
const (
	MaxRules   = 64
	MaxPattern = 128 // bytes of a pattern
	MaxField   = 255 // bytes of a field
	MaxValue   = 255 // bytes of a value that a policy takes
)

// The fields that a rule may name, besides members of a payload.
const (
	FieldTransaction  = "transaction_receipt_id"
	FieldSubmission   = "submission_receipt_id"
	FieldAdjudication = "adjudication_id"
	FieldEscrow       = "escrow_reference"
	FieldRetryKey     = "retry_key"
	// FieldReference is the reference of a payment, of a finding, of a payment that came back, and of the evidence for
	// a reservation that is freed.
	FieldReference = "reference"
)

// PayloadPrefix begins a field that names a member of a payload. A JSON Pointer (RFC 6901) follows, in which * is every
// element of a list, and no member. A member that is named * is written ~2.
const PayloadPrefix = "payload"

var fields = []string{FieldTransaction, FieldSubmission, FieldAdjudication, FieldEscrow, FieldRetryKey, FieldReference}

// Fields returns the fields that a rule may name, besides members of a payload. The slice is the caller's.
func Fields() []string { return slices.Clone(fields) }

// Policy says which values of which fields are references. The zero Policy takes none.
type Policy struct {
	Rules []Rule `json:"rules"`
}

// Rule takes the references of one field: those of a scheme, or those that a pattern matches.
type Rule struct {
	Field   string `json:"field"`             // one of Fields, or PayloadPrefix and a JSON Pointer
	Scheme  Scheme `json:"scheme,omitempty"`  // or Pattern
	Modulus int    `json:"modulus,omitempty"` // of KID: 10 or 11; 0: either
	Length  int    `json:"length,omitempty"`  // of a reference in its canonical spelling; 0: any of the scheme
	Pattern string `json:"pattern,omitempty"` // an expression of RE2 that matches the whole value; a value with a blank never matches
}

// String returns the rule for people.
func (r Rule) String() string {
	out := r.Field + " " + string(r.Scheme)
	if r.Pattern != "" {
		out = r.Field + " pattern " + r.Pattern
	}
	if r.Modulus > 0 {
		out += fmt.Sprintf(" modulus %d", r.Modulus)
	}
	if r.Length > 0 {
		out += fmt.Sprintf(" length %d", r.Length)
	}
	return out
}

// FieldError names a member of a policy, and what is wrong with it.
type FieldError = settlement.FieldError

// Validate returns a *FieldError for each problem of a policy, joined.
func (p Policy) Validate() error {
	_, err := p.Compile()
	return err
}

// Parse reads a policy from JSON, and validates it. Its errors are *FieldError, joined.
func Parse(text []byte) (Policy, error) {
	var p Policy
	if err := strictjson.CheckFor(text, p); err != nil {
		return Policy{}, &FieldError{Field: "policy", Problem: "can't be read: " + err.Error()}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil || p.Rules == nil {
		return Policy{}, &FieldError{Field: "policy", Problem: `must be {"rules":[...]}, and each rule has field, scheme, modulus, length or pattern only`}
	}
	return p, p.Validate()
}

// Changes returns the differences of two policies for people; empty if there are none.
func Changes(before, after Policy) string {
	var all []string
	for _, r := range after.Rules {
		if !slices.Contains(before.Rules, r) {
			all = append(all, "added "+r.String())
		}
	}
	for _, r := range before.Rules {
		if !slices.Contains(after.Rules, r) {
			all = append(all, "removed "+r.String())
		}
	}
	return strings.Join(all, "; ")
}

// compiledRule is a rule that was checked.
type compiledRule struct {
	Rule
	pattern *regexp.Regexp
}

// Matcher is a policy that was checked. The zero Matcher takes nothing. It is safe for concurrent use.
type Matcher struct {
	byField map[string][]compiledRule
}

// Compile checks a policy. Its errors are *FieldError, joined.
func (p Policy) Compile() (Matcher, error) {
	var errs []error
	if len(p.Rules) > MaxRules {
		return Matcher{}, &FieldError{Field: "rules", Problem: fmt.Sprintf("must be at most %d", MaxRules)}
	}
	m := Matcher{byField: map[string][]compiledRule{}}
	for i, r := range p.Rules {
		c, err := r.compile(fmt.Sprintf("rules[%d].", i))
		if err == nil && slices.Contains(p.Rules[:i], r) {
			err = &FieldError{Field: fmt.Sprintf("rules[%d]", i), Problem: "is there twice"}
		}
		errs = append(errs, err)
		m.byField[r.Field] = append(m.byField[r.Field], c)
	}
	if err := errors.Join(errs...); err != nil {
		return Matcher{}, err
	}
	return m, nil
}

func (r Rule) compile(at string) (compiledRule, error) {
	var errs []error
	wrong := func(field, problem string, args ...any) {
		errs = append(errs, &FieldError{Field: at + field, Problem: fmt.Sprintf(problem, args...)})
	}
	if problem := fieldProblem(r.Field); problem != "" {
		wrong("field", "%s", problem)
	}
	of, known := schemes[r.Scheme]
	switch {
	case (r.Scheme == "") == (r.Pattern == ""):
		wrong("scheme", "must be given, or pattern, and not both")
	case r.Scheme != "" && !known:
		wrong("scheme", "must be one of fik, kid, ocr and rf")
	case known && r.Length != 0 && (r.Length < of.min || r.Length > of.max):
		wrong("length", "must be %d to %d", of.min, of.max)
	case !known && r.Length != 0:
		wrong("length", "must be absent: the pattern says it")
	}
	if r.Modulus != 0 && (r.Scheme != KID || r.Modulus != 10 && r.Modulus != 11) {
		wrong("modulus", "must be 10 or 11, of the scheme kid only")
	}
	c := compiledRule{Rule: r}
	if r.Pattern != "" {
		var problem string
		if c.pattern, problem = compilePattern(r.Pattern); problem != "" {
			wrong("pattern", "%s", problem)
		}
	}
	return c, errors.Join(errs...)
}

// compilePattern compiles a pattern for whole values.
func compilePattern(text string) (*regexp.Regexp, string) {
	if len(text) > MaxPattern || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return nil, fmt.Sprintf("must be at most %d bytes of UTF-8 without control characters", MaxPattern)
	}
	// Compiled alone first: "a)(b" is valid only between the parentheses of the anchors.
	if _, err := regexp.Compile(text); err != nil {
		return nil, "must be an expression of RE2: " + err.Error()
	}
	anchored, err := regexp.Compile(`\A(?:` + text + `)\z`)
	switch {
	case err != nil:
		return nil, "must be an expression of RE2: " + err.Error()
	case anchored.MatchString(""):
		return nil, "must not match an empty value"
	}
	return anchored, ""
}

func fieldProblem(field string) string {
	pointer, ofPayload := strings.CutPrefix(field, PayloadPrefix)
	switch {
	case slices.Contains(fields, field):
		return ""
	case len(field) > MaxField || !utf8.ValidString(field) || strings.ContainsFunc(field, unicode.IsControl):
		return fmt.Sprintf("must be at most %d bytes of UTF-8 without control characters", MaxField)
	case !ofPayload || !strings.HasPrefix(pointer, "/"):
		return "must be one of " + strings.Join(fields, ", ") + ", or payload and a JSON Pointer, as in payload/lines/*/kid"
	}
	for i := range len(pointer) {
		if pointer[i] == '~' && (i+1 == len(pointer) || pointer[i+1] < '0' || pointer[i+1] > '2') {
			return "has a ~ that is not ~0, ~1 or ~2"
		}
	}
	return ""
}

// Names reports whether the policy has a rule for a field.
func (m Matcher) Names(field string) bool { return len(m.byField[field]) > 0 }

// Match reports whether a rule of the field takes the value, and returns its canonical spelling. The value is a
// reference as it stands only if that is equal to it.
func (m Matcher) Match(field, value string) (canonical string, matches bool) {
	if value == "" || len(value) > MaxValue {
		return "", false
	}
	for _, r := range m.byField[field] {
		if canonical, matches := r.match(value); matches {
			return canonical, true
		}
	}
	return "", false
}

func (r *compiledRule) match(value string) (canonical string, matches bool) {
	if r.pattern != nil {
		return value, !strings.ContainsFunc(value, unicode.IsSpace) && r.pattern.MatchString(value)
	}
	of := schemes[r.Scheme]
	canonical = r.Scheme.canonical(value)
	if len(canonical) < of.min || len(canonical) > of.max || r.Length > 0 && len(canonical) != r.Length {
		return "", false
	}
	return canonical, of.valid(canonical, r.Modulus)
}
