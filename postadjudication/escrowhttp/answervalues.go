package escrowhttp

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// byteOrderMark may precede a JSON text; it says nothing.
var byteOrderMark = []byte("\ufeff")

// wholeNumber is a JSON number without a fraction, also one that is written 1000.0 or 1.0e3.
type wholeNumber int64

// The longest number, and the largest power of ten in it, that is read.
const (
	maxNumber   = 40
	maxExponent = 40
)

// UnmarshalJSON implements json.Unmarshaler.
func (n *wholeNumber) UnmarshalJSON(raw []byte) error {
	text := string(raw)
	if text == "null" {
		return nil // as of any number: it stays zero
	}
	_, power, _ := strings.Cut(strings.ToLower(text), "e")
	if exponent, err := strconv.Atoi("0" + strings.TrimLeft(power, "+-")); len(text) > maxNumber || err != nil || exponent > maxExponent {
		return fmt.Errorf("%.40s is not a whole number of at most %d characters", text, maxNumber)
	}
	read, ok := new(big.Rat).SetString(text)
	if !ok || !read.IsInt() || !read.Num().IsInt64() {
		return fmt.Errorf("%s is not a whole number", text)
	}
	*n = wholeNumber(read.Num().Int64())
	return nil
}

// reference is the service's id of an execution: a text, or a number, which is kept as it is written.
type reference string

// UnmarshalJSON implements json.Unmarshaler.
func (r *reference) UnmarshalJSON(raw []byte) error {
	var number json.Number
	if raw[0] != '"' && json.Unmarshal(raw, &number) == nil {
		*r = reference(number)
		return nil
	}
	return json.Unmarshal(raw, (*string)(r))
}
