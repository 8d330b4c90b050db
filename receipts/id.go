package receipts

import (
	"encoding/hex"
	"fmt"
)

// CaseID names a case: everything about one transaction receipt. The zero value names none.
type CaseID [16]byte

// RunID names a run within a case. The zero value names none.
type RunID [16]byte

// ParseCaseID reads the 36-character text of a UUID, in lower or upper case and in no other form.
func ParseCaseID(s string) (CaseID, error) {
	u, err := parseUUID(s)
	return CaseID(u), err
}

// ParseRunID reads the 36-character text of a UUID, in lower or upper case and in no other form.
func ParseRunID(s string) (RunID, error) {
	u, err := parseUUID(s)
	return RunID(u), err
}

// String returns the canonical lower-case text; ParseCaseID(c.String()) = c.
func (c CaseID) String() string { return string(appendUUID(make([]byte, 0, uuidLen), c)) }

// String returns the canonical lower-case text; ParseRunID(r.String()) = r.
func (r RunID) String() string { return string(appendUUID(make([]byte, 0, uuidLen), r)) }

// IsZero reports whether c names no case.
func (c CaseID) IsZero() bool { return c == CaseID{} }

// IsZero reports whether r names no run.
func (r RunID) IsZero() bool { return r == RunID{} }

// MarshalText writes what String returns.
func (c CaseID) MarshalText() ([]byte, error) { return appendUUID(nil, c), nil }

// MarshalText writes what String returns.
func (r RunID) MarshalText() ([]byte, error) { return appendUUID(nil, r), nil }

// UnmarshalText reads what ParseCaseID reads; on an error c keeps its value.
func (c *CaseID) UnmarshalText(text []byte) error {
	u, err := ParseCaseID(string(text))
	if err == nil {
		*c = u
	}
	return err
}

// UnmarshalText reads what ParseRunID reads; on an error r keeps its value.
func (r *RunID) UnmarshalText(text []byte) error {
	u, err := ParseRunID(string(text))
	if err == nil {
		*r = u
	}
	return err
}

const uuidLen = 36

func appendUUID(dst []byte, u [16]byte) []byte {
	dst = hex.AppendEncode(dst, u[0:4])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, u[4:6])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, u[6:8])
	dst = append(dst, '-')
	dst = hex.AppendEncode(dst, u[8:10])
	dst = append(dst, '-')
	return hex.AppendEncode(dst, u[10:16])
}

func parseUUID(s string) ([16]byte, error) {
	var u [16]byte
	if len(s) != uuidLen || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, fmt.Errorf("receipts: %.40q is not a UUID", s)
	}
	digits := s[0:8] + s[9:13] + s[14:18] + s[19:23] + s[24:36]
	if _, err := hex.Decode(u[:], []byte(digits)); err != nil {
		return [16]byte{}, fmt.Errorf("receipts: %.40q is not a UUID: %w", s, err)
	}
	return u, nil
}
