// Package migrations has the files that make the schema of the database, in the order of their
// numbers. The number of the last one is the version of the schema.
package migrations

import (
	"embed"
	"io/fs"
	"strconv"
	"strings"
)

// Files are the migrations, each named NUMBER_SUBJECT.sql.
//
//go:embed *.sql
var Files embed.FS

// Newest returns the version of the schema that this program needs.
func Newest() (newest int64, err error) {
	names, err := fs.Glob(Files, "*.sql")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, err
		}
		newest = max(newest, n)
	}
	return newest, nil
}
