package serverfault_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/serverfault"
)

// answer is an error as Redis answers it.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

var _ redis.Error = answer("")

func TestEachFaultHasItsWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string // empty: not known
	}{
		{answer("READONLY You can't write against a read only replica."), "replica"},
		{answer("OOM command not allowed when used memory > 'maxmemory'."), "no memory"},
		{answer("MISCONF Redis is configured to save RDB snapshots"), "snapshots"},
		{answer("NOPERM User app has no permissions to run the 'eval' command"), "may not"},
		{answer("NOREPLICAS Not enough good replicas to write."), "too few replicas"},
		{answer("ERR unknown command"), ""},
		{&pq.Error{Code: "25006", Message: "cannot execute INSERT in a read-only transaction"}, "read-only"},
		{&pq.Error{Code: "53100", Message: "could not extend file"}, "no room on its disk"},
		{&pq.Error{Code: "58030", Message: "could not write to file: Disk quota exceeded"}, "no room on its disk"},
		{&pq.Error{Code: "42501", Message: "permission denied for table receipts"}, "may not"},
		{&pq.Error{Code: "53200", Message: "out of memory"}, "no memory"},
		{&pq.Error{Code: "23505"}, ""},
		{io.EOF, ""}, {errors.New("READ"), ""}, {nil, ""},
	} {
		for _, err := range []error{c.err, fmt.Errorf("no heartbeat can be written: %w", c.err)} {
			got, known := serverfault.Of(err)
			if known != (c.want != "") || !strings.Contains(got.Words, c.want) || known && got.Remedy == "" {
				t.Errorf("%v: %+v", err, got)
			}
		}
	}
}
