//go:build !unix

package failpoint

// Without signals nothing can be tested here, and nothing must seem to be.
func die()    { panic("failpoint: this system has no SIGKILL") }
func freeze() { panic("failpoint: this system has no SIGSTOP") }
