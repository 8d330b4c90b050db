// Package localredis finds redis-server and runs a private instance of it.
//
// A private instance listens on loopback only, on a free port that is never 6379, and requires a random password, which
// is in its URL: other users of the machine have no access. It is for tests and the sandbox. By default it writes
// nothing to disk, so after a restart it is empty. When its memory is full it refuses writes; it never drops keys. It
// ends with the process that started it, even if that one is killed with SIGKILL. Root runs it as the user redis, else
// nobody.
//
// It knows nothing of what is stored. Unix only.
package localredis
