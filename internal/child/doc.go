// Package child runs a private server as a child process: its lifetime, user, directory and port.
//
// A child never outlives the process that started it, even if that one is killed with SIGKILL: on Linux the kernel
// signals the child (parent death signal), elsewhere a small shell watches a pipe. Its directory remains in that case;
// it has the process id in its name and a file lock, and the next start removes it.
//
// internal/localpg, internal/localredis and cmd/sandbox use the package; it knows nothing of the
// servers. Unix only.
package child
