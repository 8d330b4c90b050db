// Package testdata carries the adjudications that the demonstration settles, so
// that the binary needs no file beside it. It holds data and nothing else.
package testdata

import _ "embed"

// Adjudications is adjudications.jsonl: JSON lines as package intake reads them,
// good ones and ones to be refused.
//
//go:embed adjudications.jsonl
var Adjudications []byte
