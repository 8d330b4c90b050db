// Package child runs a private server as a child process: its life tied to ours, its user, its directory, its port.
//
// A child never outlives the process that started it, even when that one is killed with SIGKILL: on Linux the kernel
// signals it (parent death signal), elsewhere a small shell watches a pipe. Its directory cannot be removed then; it
// carries our pid and a file lock, and the next start sweeps it.
//
// The package serves internal/localpg, internal/localredis and cmd/sandbox, and knows nothing of what they run. Unix
// only. It may import the standard library.
package child
