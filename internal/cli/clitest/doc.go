// Package clitest runs command lines in tests, as a person or a program does: arguments in,
// exit code and both streams out, against servers of the test's own.
//
// It is what the tests of the command line share, which are in the package of what they are
// about. It may import internal/cli and internal/testkit, and only tests import it.
package clitest
