package postgres

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/recourse-dev/recourse/internal/signature"
)

// anyGram stands for all grams: of a message with more than mostGrams of its own, and
// of letters that were listed before there were grams.
const (
	anyGram   = 0
	mostGrams = 300
	gramSize  = 3 // characters
)

// grams are the texts of gramSize characters that a text in lower case contains, as
// numbers, which two of them may share. Those of two tenants differ, so that what one
// looks for is not looked for among another's.
func grams(tenant string, texts ...string) map[int32]bool {
	out := map[int32]bool{}
	for _, text := range texts {
		runes := []rune(text)
		for i := 0; i+gramSize <= len(runes); i++ {
			h := fnv.New32a()
			_, _ = h.Write([]byte(tenant + "\x00" + string(runes[i:i+gramSize]))) // a hash takes everything
			if g := int32(h.Sum32()); g != anyGram {
				out[g] = true
			}
		}
	}
	return out
}

// gramsBut are those grams of a text that the constant part of messages does not
// have. A message with that constant that contains the text has all of them.
func gramsBut(tenant, text, constant string) []int32 {
	known := grams(tenant, strings.Split(constant, signature.Gap)...)
	var out []int32
	for g := range grams(tenant, text) {
		if !known[g] {
			out = append(out, g)
		}
	}
	slices.Sort(out)
	return out
}

// gramsOf is what is kept of a message: what it has beside its constant part.
func gramsOf(tenant, message, constant string) []int32 {
	out := gramsBut(tenant, message, constant)
	if len(out) > mostGrams {
		return []int32{anyGram}
	}
	return out
}

// arrayOf writes grams as a literal.
func arrayOf(grams []int32) string {
	b := []byte{'{'}
	for i, g := range grams {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(g), 10)
	}
	return string(append(b, '}'))
}
