//go:build production

package app

import "context"

// DemoBuild reports whether this program has private servers and the escrow service for
// demonstrations. A build with the tag production has neither, so they cannot be started on a
// database with real money, and their dependencies need no security updates.
const DemoBuild = false

const embeddedHint = ""

var errProduction = optionError("this is a production build without private servers and escrow service: name them by flags or the environment")

// EmbeddedEscrow is the escrow service for demonstrations, which a production build does not have.
type EmbeddedEscrow struct{}

func (*Escrow) embed() error { return errProduction }

func (*Main) startPostgres(context.Context) (databaseURL string, err error) {
	return "", errProduction
}

func (*Main) startRedis() (redisURL string, err error) { return "", errProduction }
