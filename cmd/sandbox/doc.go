// Command sandbox runs a command with a private Postgres and a private Redis.
//
//	go run ./cmd/sandbox [-durable=false] [-test-programs] COMMAND [ARGUMENT...]
//
// It starts both servers on free loopback ports, with their files in temporary directories, and sets for the command
//
//	RECOURSE_DATABASE_URL         the empty database "recourse", for the role recourse_app, which owns nothing
//	RECOURSE_OWNER_DATABASE_URL   the same, for the superuser, who creates databases and schemas
//	RECOURSE_REDIS_URL            database 0
//
// The first and the third are what a process in production has; only migrations, demonstrations and tests need the
// second. The role has no rights yet: recourse migrate --app-role recourse_app grants them.
//
// If a server's programs are missing, or with -test-programs Node.js with npm or LibreOffice Calc, the sandbox installs them, as root on a Linux with apt-get only. It never changes
// installed programs, and never uses or starts a server on a standard port. The command has the sandbox's input and
// outputs and gets its SIGINT, SIGTERM and SIGHUP; the sandbox itself writes only to standard error. When the command
// ends, the sandbox stops the servers and all processes left in the command's process group. If the sandbox is killed,
// they are killed, too, and the next start removes its directories.
//
// The exit code is that of the command, or 128 plus the number of the signal that ended it; 64 for wrong usage, 69 if
// the servers cannot be started, 70 if the command succeeded but the cleanup failed, 126 if the command cannot be run,
// and 127 if it is not found. (`go run` turns every code but 0 into 1; build the binary if the code matters.)
//
// It knows nothing of the product. Unix only.
package main
