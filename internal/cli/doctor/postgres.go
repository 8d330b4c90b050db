package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	_ "github.com/lib/pq" // the driver

	"github.com/recourse-dev/recourse/internal/pgurl"
)

const (
	oldestPostgres = 150000 // in the form of server_version_num
	// mostApart is how far two clocks may be apart before receipts of two machines
	// read strangely. Nothing is decided by comparing them.
	mostApart = 2 * time.Second
)

// examinePostgres looks at the server. The first check is whether it answers; when
// it does not, it is the only one.
func examinePostgres(ctx context.Context, databaseURL string) (checks []Check) {
	const name = "Postgres reachable"
	named, err := pgurl.Named(databaseURL, "recourse/doctor")
	if err != nil {
		return []Check{wrong(name, err.Error(), "mend the URL")}
	}
	db, err := sql.Open("postgres", named)
	if err == nil {
		err = db.PingContext(ctx)
	}
	if err != nil {
		return []Check{wrong(name, err.Error(), "check the URL, and that the server runs and lets this host in")}
	}
	defer func() {
		if err := db.Close(); err != nil {
			checks = append(checks, wrong("Postgres connection", err.Error(), "check the network"))
		}
	}()
	p := patient{ctx, db}
	return []Check{
		fine(name, "yes"), p.version(), p.durable("fsync", "on"), p.durable("synchronous_commit", "on", "remote_write", "remote_apply"), p.appendOnly(), p.guarded(), p.clock(),
	}
}

type patient struct {
	ctx context.Context
	db  *sql.DB
}

func (p patient) ask(query string, args ...any) (answer string, err error) {
	err = p.db.QueryRowContext(p.ctx, query, args...).Scan(&answer)
	return answer, err
}

func (p patient) version() Check {
	const name = "Postgres version"
	text, err := p.ask(`SELECT current_setting('server_version_num')`)
	if err != nil {
		return wrong(name, err.Error(), "check the server's log")
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < oldestPostgres {
		return wrong(name, text, "use Postgres 15 or newer")
	}
	return fine(name, fmt.Sprintf("%d.%d", number/10000, number%10000))
}

// durable checks a setting without which a commit that was answered may get lost.
func (p patient) durable(setting string, good ...string) Check {
	value, err := p.ask(`SELECT current_setting($1)`, setting)
	if err != nil {
		return wrong(setting, err.Error(), "check the server's log")
	}
	for _, g := range good {
		if value == g {
			return fine(setting, value)
		}
	}
	return wrong(setting, value, fmt.Sprintf("set %s = on: a crash may lose what was committed", setting))
}

// appendOnly asks the catalogue; nothing is tried on real receipts.
func (p patient) appendOnly() Check {
	const name = "receipts append-only"
	state, err := p.ask(`SELECT coalesce((SELECT t.tgenabled::text FROM pg_trigger t
		WHERE t.tgrelid = to_regclass('recourse.receipts') AND t.tgname = 'append_only'), '')`)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "check the server's log")
	case state == "":
		return wrong(name, "the trigger is not there", "recourse migrate, then receipts verify")
	case state == "D":
		return wrong(name, "the trigger is disabled", "recourse migrate, then receipts verify")
	case state != "A":
		return wrong(name, "a session can turn the trigger off, as after a data-only restore", "recourse migrate, then receipts verify")
	}
	return fine(name, "trigger in force")
}

// guarded names the other triggers that refuse changes and are not in force in every
// session. Those that are not there at all are found when the schema is looked at.
func (p patient) guarded() Check {
	const name = "what receipts bind is kept"
	off, err := p.ask(`SELECT coalesce(string_agg(c.relname || '.' || t.tgname, ', ' ORDER BY c.relname, t.tgname), '') FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
		JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'recourse' AND f.proname LIKE 'refuse\_%' AND t.tgenabled <> 'A'`)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "check the server's log")
	case off != "":
		return wrong(name, "not in force: "+off, "recourse migrate, then receipts verify")
	}
	return fine(name, "triggers in force")
}

func (p patient) clock() Check {
	const name = "clocks"
	var there time.Time
	asked := time.Now()
	if err := p.db.QueryRowContext(p.ctx, `SELECT clock_timestamp()`).Scan(&there); err != nil {
		return wrong(name, err.Error(), "check the server's log")
	}
	// The answer is from about the middle of the round trip.
	apart := there.Sub(asked.Add(time.Since(asked) / 2)).Round(time.Millisecond)
	if apart.Abs() > mostApart {
		return hint(name, fmt.Sprintf("Postgres and this host are %s apart", apart.Abs()), "synchronise them (NTP), so that receipts read in order")
	}
	return fine(name, fmt.Sprintf("%s apart", apart.Abs()))
}
