package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lib/pq" // also the driver

	"github.com/recourse-dev/recourse/internal/pgurl"
)

// NoTLSRemedy is the fix for a server without TLS. A URL without sslmode requires TLS.
const NoTLSRemedy = "enable TLS on the server; or, if the network to it is trusted, add ?sslmode=disable to the URL and, beyond this machine, --insecure-servers postgres"

const (
	minPostgres = 150000 // in the form of server_version_num
	// maxClockOffset is the offset of two clocks from which the receipts of two machines look out
	// of order. No decision compares these clocks.
	maxClockOffset = 2 * time.Second
)

// examinePostgres checks the server. The first check is whether it is reachable; if not, it is
// the only one.
func examinePostgres(ctx context.Context, databaseURL string) (checks []Check) {
	const name = "Postgres reachable"
	named, err := pgurl.WithApplicationName(databaseURL, "recourse/doctor")
	if err != nil {
		return []Check{wrong(name, err.Error(), "correct the URL")}
	}
	if _, err := pq.NewConfig(named); err != nil { // the driver's error repeats the URL
		return []Check{wrong(name, pgurl.ErrUnreadable.Error(), "correct the URL, or PGSSLMODE and the other PG variables in the environment")}
	}
	db, err := sql.Open("postgres", named)
	if err == nil {
		err = db.PingContext(ctx)
	}
	switch {
	case errors.Is(err, pq.ErrSSLNotSupported):
		return []Check{wrong(name, err.Error(), NoTLSRemedy)}
	case err != nil:
		return []Check{wrong(name, err.Error(), "check the URL, and that the server runs and accepts connections from this host")}
	}
	defer func() {
		if err := db.Close(); err != nil {
			checks = append(checks, wrong("Postgres connection", err.Error(), "check the network"))
		}
	}()
	p := postgresServer{ctx, db}
	checks = []Check{
		fine(name, "yes"), p.version(), p.fsync(), p.synchronousCommit(), p.replication(), p.clock(),
	}
	return checks
}

type postgresServer struct {
	ctx context.Context
	db  *sql.DB
}

func (p postgresServer) ask(query string, args ...any) (answer string, err error) {
	err = p.db.QueryRowContext(p.ctx, query, args...).Scan(&answer)
	return answer, err
}

func (p postgresServer) version() Check {
	const name = "Postgres version"
	text, err := p.ask(`SELECT current_setting('server_version_num')`)
	if err != nil {
		return wrong(name, err.Error(), "check the server's log")
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < minPostgres {
		return wrong(name, text, "use Postgres 15 or newer")
	}
	return fine(name, fmt.Sprintf("%d.%d", number/10000, number%10000))
}

// fsync checks the setting without which a crash of the machine loses acknowledged commits.
func (p postgresServer) fsync() Check {
	const name = "fsync"
	value, err := p.ask(`SELECT current_setting('fsync')`)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "check the server's log")
	case value != "on":
		return wrong(name, value, "set fsync = on: a crash may lose committed transactions")
	}
	return fine(name, value)
}

// synchronousCommit checks the default of new sessions, which the sessions of processes replace where it is weak.
func (p postgresServer) synchronousCommit() Check {
	const name = "synchronous_commit"
	value, err := p.ask(`SELECT current_setting('synchronous_commit')`)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "check the server's log")
	case value == "off" || value == "local":
		return hint(name, value+" by default: Recourse commits with on, other programs may lose what they commit to this database", "set synchronous_commit = on for the database and the role")
	}
	return fine(name, value)
}

// replication checks whether commits survive the loss of this server.
func (p postgresServer) replication() Check {
	const name = "replication"
	names, err := p.ask(`SELECT current_setting('synchronous_standby_names')`)
	if err != nil {
		return wrong(name, err.Error(), "check the server's log")
	}
	if names == "" {
		return hint(name, "not synchronous: a failover to a standby may lose the last commits, including findings and payments", "set synchronous_standby_names, or compare with the escrow service after a failover")
	}
	standbys, err := p.ask(`SELECT CASE WHEN bool_or(sync_state IS NULL) THEN '' ELSE count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))::text END FROM pg_stat_replication`)
	switch {
	case err != nil:
		return wrong(name, err.Error(), "check the server's log")
	case standbys == "":
		return hint(name, "synchronous; this role may not see the standbys", "GRANT pg_read_all_stats to the role, or use another role")
	case standbys == "0":
		return hint(name, "synchronous, but no standby is connected: every commit waits for one", "start the standby that synchronous_standby_names names")
	}
	return fine(name, "synchronous, standbys: "+standbys)
}

func (p postgresServer) clock() Check {
	const name = "clocks"
	var there time.Time
	asked := time.Now()
	if err := p.db.QueryRowContext(p.ctx, `SELECT clock_timestamp()`).Scan(&there); err != nil {
		return wrong(name, err.Error(), "check the server's log")
	}
	// The server read its clock at about the middle of the round trip.
	apart := there.Sub(asked.Add(time.Since(asked) / 2)).Round(time.Millisecond)
	if apart.Abs() > maxClockOffset {
		return hint(name, fmt.Sprintf("the clocks of Postgres and this host differ by %s", apart.Abs()), "synchronise them (NTP), so that receipts read in order")
	}
	return fine(name, fmt.Sprintf("differ by %s", apart.Abs()))
}
