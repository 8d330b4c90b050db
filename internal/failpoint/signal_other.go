//go:build !unix

package failpoint

// Without signals nothing can be tested here, so that arming must fail visibly.
func kill()   { panic("failpoint: this system has no SIGKILL") }
func freeze() { panic("failpoint: this system has no SIGSTOP") }
