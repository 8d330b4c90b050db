//go:build production

package app

import "context"

// Demonstrates reports whether this program has servers and an escrow service of its own for
// demonstrations. One built with the tag production has none: what is not in it can't be started
// on the database of real money, and needs no mending.
const Demonstrates = false

const orEmbedded = ""

var errProduction = wrong("this program was built for production, without servers and an escrow service of its own: name them")

// Ledger is the escrow service for demonstrations, of which there is none.
type Ledger struct{}

func (*Escrow) embed() error { return errProduction }

func (*Main) startPostgres(context.Context) (databaseURL string, err error) {
	return "", errProduction
}

func (*Main) startRedis() (redisURL string, err error) { return "", errProduction }
