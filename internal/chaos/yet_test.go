package main

import (
	"slices"
	"strings"
)

// notYet are the words of what the product does not survive yet, and is known to.
var notYet = []string{
	"runs did not come to rest within",
	"cases are still unknown, and 0 may be",
}

// surprising is what is broken and not known to be.
func surprising(broken []string) []string {
	return slices.DeleteFunc(slices.Clone(broken), func(b string) bool {
		return slices.ContainsFunc(notYet, func(words string) bool { return strings.Contains(b, words) })
	})
}
