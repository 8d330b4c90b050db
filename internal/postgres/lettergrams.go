package postgres

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/recourse-dev/recourse/internal/signature"
)

// anyTrigram stands for all grams: of a message with more than maxTrigrams of its own, and
// of letters that were listed before there were grams.
const (
	anyTrigram  = 0
	maxTrigrams = 300
	trigramSize = 3 // characters
)

// trigrams are the texts of trigramSize characters that a text in lower case contains, as
// numbers, which two of them may share. Those of two tenants differ, so that what one
// looks for is not looked for among another's.
func trigrams(tenant string, texts ...string) map[int32]bool {
	out := map[int32]bool{}
	for _, text := range texts {
		runes := []rune(text)
		for i := 0; i+trigramSize <= len(runes); i++ {
			h := fnv.New32a()
			_, _ = h.Write([]byte(tenant + "\x00" + string(runes[i:i+trigramSize]))) // a hash takes everything
			if g := int32(h.Sum32()); g != anyTrigram {
				out[g] = true
			}
		}
	}
	return out
}

// trigramsWithout are those grams of a text that the constant part of messages does not
// have. A message with that constant that contains the text has all of them.
func trigramsWithout(tenant, text, constant string) []int32 {
	inConstant := trigrams(tenant, strings.Split(constant, signature.Gap)...)
	var out []int32
	for g := range trigrams(tenant, text) {
		if !inConstant[g] {
			out = append(out, g)
		}
	}
	slices.Sort(out)
	return out
}

// storedTrigrams is what is kept of a message: what it has beside its constant part.
func storedTrigrams(tenant, message, constant string) []int32 {
	out := trigramsWithout(tenant, message, constant)
	if len(out) > maxTrigrams {
		return []int32{anyTrigram}
	}
	return out
}

// arrayLiteral writes grams as a literal.
func arrayLiteral(values []int32) string {
	b := []byte{'{'}
	for i, g := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(g), 10)
	}
	return string(append(b, '}'))
}
