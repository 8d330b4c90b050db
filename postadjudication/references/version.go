package references

import (
	"encoding/json"
	"fmt"
	"time"
)

// Version is one version of a tenant's policy of references, as its receipt states it.
type Version struct {
	Tenant       string    `json:"tenant"`
	Policy       Policy    `json:"policy"`
	Version      int64     `json:"version"`                 // counts the changes; 0: no policy was ever set
	Changes      string    `json:"changes,omitempty"`       // from the version before, for people
	Actor        string    `json:"actor,omitempty"`         // who set it
	SelfDeclared bool      `json:"self_declared,omitempty"` // the actor's name was not verified
	Reason       string    `json:"reason,omitempty"`
	At           time.Time `json:"at,omitzero"`
	Receipt      string    `json:"receipt_id,omitempty"`
	// Format is the format of a policy that this program can't read, because a newer version set it; 0: it can.
	Format int `json:"newer_format,omitempty"`
}

// Change sets the policy of references of a tenant.
type Change struct {
	Policy    Policy // the whole policy
	Reason    string // required
	IfVersion *int64 // refused unless it is the current version; nil: any version
	// Force also replaces a policy that this program can't read, because a newer version set it. IfVersion of that
	// policy does so, too.
	Force bool
}

// VersionError means that the policy does not have the version that a change expects, or that another change was first.
type VersionError struct {
	Expected int64
	Current  Version
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("references: the policy of references of %s is at version %d, not %d", e.Current.Tenant, e.Current.Version, e.Expected)
}

// FormatError means that a newer version of Recourse set the policy, in a format that this program can't read.
type FormatError struct {
	Tenant  string
	Version int64
	Format  int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("references: version %d of the policy of references of %s was set by a newer version of Recourse (format %d, this one reads %d): update this program, or have an admin set the policy again with force",
		e.Version, e.Tenant, e.Format, format)
}

// format is the format of Encode.
const format = 1

// encoded is a policy as a receipt keeps it.
type encoded struct {
	Format int    `json:"format"`
	Rules  []Rule `json:"rules"`
}

// Encode returns a policy as a receipt keeps it.
func Encode(p Policy) (string, error) {
	text, err := json.Marshal(encoded{format, append([]Rule{}, p.Rules...)})
	return string(text), err
}

// Decode reads what Encode has written. newer is the format of a policy that a newer version has written, which can't
// be read; else it is 0.
func Decode(text string) (p Policy, newer int, err error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal([]byte(text), &head); err != nil {
		return Policy{}, 0, fmt.Errorf("references: the receipt of the policy can't be read: %w", err)
	}
	if head.Format > format {
		return Policy{}, head.Format, nil
	}
	var of encoded
	if err := json.Unmarshal([]byte(text), &of); err != nil {
		return Policy{}, 0, fmt.Errorf("references: the receipt of the policy can't be read: %w", err)
	}
	return Policy{Rules: of.Rules}, 0, nil
}
