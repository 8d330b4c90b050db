// Package child runs a private server as a child process: its lifetime, user, directory and port.
//
// A child never outlives the process that started it, even if that one is killed with SIGKILL: on Linux the kernel
// signals the child (parent death signal), elsewhere a small shell watches a pipe. Its directory remains in that case;
// it has the process id in its name and a file lock, and the next start removes it.
//
// It also runs the processes of cmd/sandbox, internal/chaos and internal/bench, and knows nothing of what it runs. Unix
// only.
package child
