//go:build production

package app

import "context"

// DemoBuild reports whether this program has servers and an escrow service of its own for
// demonstrations. One built with the tag production has none: what is not in it can't be started
// on the database of real money, and needs no mending.
const DemoBuild = false

const embeddedHint = ""

var errProduction = optionError("this program was built for production, without servers and an escrow service of its own: name them")

// EmbeddedEscrow is the escrow service for demonstrations, of which there is none.
type EmbeddedEscrow struct{}

func (*Escrow) embed() error { return errProduction }

func (*Main) startPostgres(context.Context) (databaseURL string, err error) {
	return "", errProduction
}

func (*Main) startRedis() (redisURL string, err error) { return "", errProduction }
