// Package doctor checks whether the servers are fit for Recourse, and returns a fix for each
// problem. It changes nothing. It may import the public packages, internal/pgurl, database/sql,
// asynq and go-redis,
// and knows no command line.
package doctor
