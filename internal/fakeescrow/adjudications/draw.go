package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// hashBelow is a number below n that depends on its label alone. It is a hash, not a
// random generator, so that a change in one place leaves the other lines alone.
func hashBelow(n int, label string, args ...any) int {
	sum := sha256.Sum256(fmt.Appendf(nil, "adjudications/1 "+label, args...))
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(n))
}

// startTime is when the first line was decided; a line is decided each pace.
var startTime = time.Date(2026, 2, 2, 8, 0, 0, 0, time.UTC)

const (
	lineInterval = 41 * time.Second
	crockford    = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

// id is a prefixed ULID with the time of the place.
func id(prefix string, at float64, label string) string {
	var out [26]byte
	ms := startTime.Add(time.Duration(at*float64(lineInterval/time.Millisecond)) * time.Millisecond).UnixMilli()
	for i := 9; i >= 0; i-- {
		out[i] = crockford[ms&31]
		ms >>= 5
	}
	sum := sha256.Sum256([]byte("adjudications/1 " + prefix + label))
	for i := range 16 {
		out[10+i] = crockford[sum[i]&31]
	}
	return prefix + string(out[:])
}
