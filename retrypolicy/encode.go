package retrypolicy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// maxText holds every valid policy, with room for its non-retryable types written
// in escapes.
const maxText = 128 << 10

// policyJSON is the JSON form. Durations are Go duration strings, which are exact.
type policyJSON struct {
	MaxRetryAttempts int        `json:"max_retry_attempts"`
	BaseDelay        string     `json:"base_delay"`
	MaxDelay         string     `json:"max_delay"`
	Backoff          Backoff    `json:"backoff,omitempty"` // absent if exponential, as in policies that were stored before it
	Coefficient      float64    `json:"coefficient"`
	Jitter           float64    `json:"jitter"`
	NonRetryable     []string   `json:"non_retryable"`
	OnExhaustion     Exhaustion `json:"on_exhaustion"`
}

// Encode returns the normalized policy as JSON with every field but an exponential
// backoff, always the same text for the same policy. For a policy that is valid, Parse(p.Encode()) is
// p.Normalize().
func (p Policy) Encode() string {
	p = p.Normalize()
	w := policyJSON{
		MaxRetryAttempts: p.MaxRetryAttempts, BaseDelay: p.BaseDelay.String(), MaxDelay: p.MaxDelay.String(),
		Coefficient: p.Coefficient, Jitter: p.Jitter, NonRetryable: p.NonRetryable, OnExhaustion: p.OnExhaustion,
	}
	if p.Backoff == Linear {
		w.Backoff = Linear
	}
	if w.NonRetryable == nil {
		w.NonRetryable = []string{}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(w); err != nil {
		// The wire form has finite numbers and strings only: encoding can't fail.
		panic("retrypolicy: " + err.Error())
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}

// Parse reads a policy in JSON, from an operator or by Encode, and returns it
// normalized. A missing field has its default. A field that is
// unknown, misspelt in its case, given twice, null, zero where that would mean the
// default, or refused by Validate is an error, and so is anything after the object.
func Parse(text string) (Policy, error) {
	var p Policy
	if text == defaultText {
		return defaultPolicy, nil
	}
	if len(text) > maxText {
		return p, fmt.Errorf("retrypolicy: policy is longer than %d bytes", maxText)
	}
	if !utf8.ValidString(text) {
		return p, errors.New("retrypolicy: policy is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return p, errors.New("retrypolicy: policy is not a JSON object")
	}
	for seen := map[string]bool{}; dec.More(); {
		token, err := dec.Token()
		if err != nil {
			return Policy{}, fmt.Errorf("retrypolicy: policy is not readable: %w", err)
		}
		field, ok := token.(string)
		if !ok || seen[field] {
			return Policy{}, &FieldError{Field: fmt.Sprint(token), Problem: "is given twice"}
		}
		seen[field] = true
		if err := p.read(dec, field); err != nil {
			return Policy{}, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return Policy{}, fmt.Errorf("retrypolicy: policy is not readable: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Policy{}, errors.New("retrypolicy: something follows the policy")
	}
	if err := p.Validate(); err != nil {
		return Policy{}, err
	}
	return p.Normalize(), nil
}

// Nearly every run that is read from the store has the default policy, so that
// its text is compared before it is parsed.
var (
	defaultPolicy = Policy{}.Normalize()
	defaultText   = Policy{}.Encode()
)

func (p *Policy) read(dec *json.Decoder, field string) error {
	switch field {
	case "max_retry_attempts":
		return set(dec, field, &p.MaxRetryAttempts)
	case "base_delay":
		return duration(dec, field, &p.BaseDelay)
	case "max_delay":
		return duration(dec, field, &p.MaxDelay)
	case "backoff":
		return set(dec, field, &p.Backoff)
	case "coefficient":
		return set(dec, field, &p.Coefficient)
	case "jitter":
		return value(dec, field, &p.Jitter)
	case "non_retryable":
		return value(dec, field, &p.NonRetryable)
	case "on_exhaustion":
		return set(dec, field, &p.OnExhaustion)
	}
	return &FieldError{Field: field, Problem: "is not a field of a policy"}
}

func value[T any](dec *json.Decoder, field string, into *T) error {
	var given *T
	if err := dec.Decode(&given); err != nil {
		return &FieldError{Field: field, Problem: "is not readable: " + err.Error()}
	}
	if given == nil {
		return &FieldError{Field: field, Problem: "is null"}
	}
	*into = *given
	return nil
}

// set returns an error for a zero: whoever writes one wants no retry or no wait, and
// must not get the default.
func set[T comparable](dec *json.Decoder, field string, into *T) error {
	if err := value(dec, field, into); err != nil {
		return err
	}
	var zero T
	if *into == zero {
		return &FieldError{Field: field, Problem: "is zero; leave it out for the default"}
	}
	return nil
}

func duration(dec *json.Decoder, field string, into *time.Duration) error {
	var text string
	if err := value(dec, field, &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return &FieldError{Field: field, Problem: "is not a duration such as \"25ms\""}
	}
	if d == 0 {
		return &FieldError{Field: field, Problem: "is zero; leave it out for the default"}
	}
	*into = d
	return nil
}

// MarshalJSON writes what Encode writes.
func (p Policy) MarshalJSON() ([]byte, error) { return []byte(p.Encode()), nil }

// UnmarshalJSON reads what Parse reads.
func (p *Policy) UnmarshalJSON(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}
