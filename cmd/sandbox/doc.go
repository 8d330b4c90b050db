// Command sandbox runs a command beside a private real Postgres and Redis.
//
//	go run ./cmd/sandbox [-durable=false] COMMAND [ARGUMENT...]
//
// It starts both servers on free ports of loopback, with their files in temporary directories, and gives the command
//
//	RECOURSE_DATABASE_URL         the empty database "recourse", for the role recourse_app, which owns nothing
//	RECOURSE_OWNER_DATABASE_URL   the same, for the superuser, who makes databases and schemas
//	RECOURSE_REDIS_URL            database 0
//
// So the command has what a process in production has, and beside it what only a migration, a demonstration and
// tests need. The role is granted nothing yet: recourse migrate --app-role recourse_app does that.
//
// What is missing it installs, where it may: root on a Linux with apt-get. What is found is never changed, and no server on a
// standard port is touched or started. The command has the sandbox's input and outputs and gets its SIGINT, SIGTERM
// and SIGHUP; the sandbox itself writes to standard error only. When the command ends, the servers end, and so does
// whatever the command left running in its process group. When the sandbox is killed, all of them are; its directories are
// swept by the next start.
//
// The exit code is the command's, 128 and the signal's number when a signal ended it; 64 for wrong usage, 69 when the
// servers cannot be had, 126 and 127 when the command cannot be run or found. (`go run` turns every code but 0 into 1;
// build the binary where the code matters.)
//
// It may import internal/child, localpg and localredis, and knows nothing of the product. Unix only.
package main
