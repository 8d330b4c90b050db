package settlement

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"math/bits"
	"slices"
	"strings"
)

// Sum is a sum of amounts in minor units. It has 128 bits: no number of amounts that can be stored exceeds
// it. The zero value is a sum of nothing, and sums can be compared by ==.
type Sum struct {
	high int64
	low  uint64
}

// SumOf returns the sum of one amount.
func SumOf(minor int64) Sum { return Sum{high: minor >> 63, low: uint64(minor)} }

// Plus returns the sum of both.
func (s Sum) Plus(t Sum) Sum {
	low, carry := bits.Add64(s.low, t.low, 0)
	high, _ := bits.Add64(uint64(s.high), uint64(t.high), carry)
	return Sum{int64(high), low}
}

// Sign returns -1, 0 or 1, as the sum is below, at or above zero.
func (s Sum) Sign() int { return s.big().Sign() }

// Minor returns the sum as an amount. ok is false if that would not be exact for every reader of JSON: beyond MaxMinor,
// or below its opposite.
func (s Sum) Minor() (minor int64, ok bool) {
	minor = int64(s.low)
	return minor, s == SumOf(minor) && minor <= MaxMinor && minor >= -MaxMinor
}

// Float returns the nearest float64, for metrics.
func (s Sum) Float() float64 {
	f, _ := new(big.Float).SetInt(s.big()).Float64()
	return f
}

// String returns the sum in decimal digits.
func (s Sum) String() string { return s.big().String() }

// In writes the sum for people, as Money is written.
func (s Sum) In(currency string) string { return inMajorUnits(s.String(), currency) }

func (s Sum) big() *big.Int {
	n := big.NewInt(s.high)
	return n.Lsh(n, 64).Add(n, new(big.Int).SetUint64(s.low))
}

// ParseSum reads what String writes.
func ParseSum(digits string) (Sum, error) {
	n, ok := new(big.Int).SetString(digits, 10)
	if !ok || n.String() != digits {
		return Sum{}, fmt.Errorf("settlement: %.60q is no sum in decimal digits", digits)
	}
	if n.BitLen() > 127 {
		return Sum{}, errors.New("settlement: the sum has more than 127 bits")
	}
	low := new(big.Int).And(n, new(big.Int).SetUint64(1<<64-1))
	return Sum{new(big.Int).Rsh(n, 64).Int64(), low.Uint64()}, nil
}

// MarshalJSON writes a number, or a text of its digits if the number would not be exact for every reader.
func (s Sum) MarshalJSON() ([]byte, error) {
	if _, ok := s.Minor(); ok {
		return []byte(s.String()), nil
	}
	return []byte(`"` + s.String() + `"`), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Sum) UnmarshalJSON(text []byte) (err error) {
	digits := string(text)
	if len(digits) > 2 && digits[0] == '"' && digits[len(digits)-1] == '"' {
		digits = digits[1 : len(digits)-1]
	}
	*s, err = ParseSum(digits)
	return err
}

// Scan reads a sum from a column of type numeric or bigint.
func (s *Sum) Scan(value any) (err error) {
	switch v := value.(type) {
	case int64:
		*s = SumOf(v)
	case []byte:
		*s, err = ParseSum(string(v))
	case string:
		*s, err = ParseSum(v)
	default:
		return fmt.Errorf("settlement: a %T is no sum", value)
	}
	return err
}

// Sums are sums by currency.
type Sums map[string]Sum

// Add adds a sum in a currency. It leaves out what has no currency: that is no money.
func (s Sums) Add(currency string, sum Sum) {
	if currency != "" {
		s[currency] = s[currency].Plus(sum)
	}
}

// String writes the sums for people, in the order of their currencies.
func (s Sums) String() string {
	out := make([]string, 0, len(s))
	for _, currency := range slices.Sorted(maps.Keys(s)) {
		out = append(out, s[currency].In(currency))
	}
	return strings.Join(out, ", ")
}
