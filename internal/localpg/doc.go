// Package localpg finds the PostgreSQL binaries of this machine and runs a private instance of them.
//
// A private instance listens on loopback only, on a free port that is never 5432, without a Unix socket, and requires a
// random password, which is in its URL: other users of the machine have no access. It is for tests, demonstrations and
// the sandbox. AppURL connects as a role that owns nothing, like a process in production. The instance ends with the
// process that started it, even if that one is killed with SIGKILL. Root runs it as the user postgres, else nobody.
//
//	stopped --Start--> running --Restart(mode)--> running
//	running --Kill--> killed --Restart--> running (recovered)
//	any     --Stop--> gone (a temporary directory is removed)
//
// It knows nothing of this module's schema. Unix only.
package localpg
