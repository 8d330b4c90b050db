// Package localredis finds redis-server and runs a private instance of it.
//
// A private instance listens on loopback alone, on a free port that is never 6379, and asks for a random
// password of its own, which URL has: another user of the machine gets nothing from it. It is for tests and the sandbox. By default it writes nothing to disk, so that a restart finds it empty. It refuses writes when its memory
// is full rather than dropping keys. It dies with the process that started it, even when that one is killed with
// SIGKILL. Root runs it as the user redis, else nobody.
//
// It may import internal/child and the standard library, and knows nothing of what is stored. Unix only.
package localredis
