// Package doctor checks whether the servers are fit for Recourse, and returns a fix for each
// problem. It changes nothing, and knows no command line.
package doctor
