// Package clitest runs command lines in tests against real servers: arguments in, exit code and
// both streams out.
//
// The tests of the command line are in the packages they test and share this package. Only tests
// import it.
package clitest
