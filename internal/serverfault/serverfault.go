package serverfault

import (
	"errors"
	"strings"

	"github.com/lib/pq"
	"github.com/redis/go-redis/v9"
)

// Fault is what is wrong with a server.
type Fault struct {
	Words  string // what is wrong, safe to show to anybody
	Remedy string // what to do about it
}

// ofRedis are the faults by the first word of an error of Redis.
var ofRedis = map[string]Fault{
	"READONLY": {"Redis is a replica, which takes no writes", "name the primary, or the Sentinels that know it: this is a replica"},
	"OOM":      {"Redis has no memory left", "raise maxmemory, or remove what else it keeps"},
	"MISCONF":  {"Redis can't write its snapshots, and takes no writes", "make room where Redis writes its snapshots, or see its log"},
	"NOPERM": {"the user of Redis may not do what is needed",
		"let the user run scripts and write keys: ACL SETUSER NAME ~asynq:* ~recourse:* &asynq:* &recourse:* +@all -@admin"},
	"NOREPLICAS": {"Redis has too few replicas, and takes no writes", "start its replicas, or lower min-replicas-to-write"},
}

// ofPostgres are the faults by the code of an error of Postgres.
var ofPostgres = map[string]Fault{
	"25006": {"Postgres is read-only, as a standby is", "name the primary"},
	"53100": {"Postgres has no room on its disk", "make room on the disk of the server, and see its log"},
	"53200": {"Postgres has no memory left", "see the server's log"},
	"42501": {"the role of Postgres may not do what is needed", "run recourse migrate --app-role NAME, as the owner of the schema"},
}

// quotaExceeded is what the operating system says of a disk quota: Postgres has no code of its own for it.
const quotaExceeded = "Disk quota exceeded"

// Of returns the fault that an error of a server states; known is false for any other error.
func Of(err error) (f Fault, known bool) {
	var refused *pq.Error
	if errors.As(err, &refused) {
		f, known = ofPostgres[string(refused.Code)]
		if !known && strings.Contains(refused.Message, quotaExceeded) {
			f, known = ofPostgres["53100"]
		}
		return f, known
	}
	for word, f := range ofRedis {
		if redis.HasErrorPrefix(err, word) {
			return f, true
		}
	}
	return Fault{}, false
}
