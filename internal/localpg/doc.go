// Package localpg finds the PostgreSQL binaries of this machine and runs a private instance of them.
//
// A private instance listens on loopback alone, on a free port that is never 5432, without a Unix socket, and asks for
// a random password of its own, which URL has: another user of the machine gets nothing from it. It is for tests,
// demonstrations and the sandbox. AppURL names a database for a role that owns nothing, as a process in production has
// one. It dies with the process that started it, even
// when that one is killed with SIGKILL. Root runs it as the user postgres, else nobody.
//
//	stopped --Start--> running --Restart(mode)--> running
//	running --Kill--> killed --Restart--> running (recovered)
//	any     --Stop--> gone (a temporary directory is removed)
//
// It may import internal/child and lib/pq, and knows nothing of this module's schema. Unix only.
package localpg
