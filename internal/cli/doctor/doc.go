// Package doctor looks whether the servers are fit for Recourse, and says of each
// thing that is not, how to cure it. It reads only; it may import the public
// packages, database/sql and go-redis, and knows no command line.
package doctor
