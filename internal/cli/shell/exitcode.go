package shell

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/lib/pq"
	"github.com/redis/go-redis/v9"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/intake"
	"github.com/recourse-dev/recourse/internal/textfile"
	"github.com/recourse-dev/recourse/postadjudication"
	"github.com/recourse-dev/recourse/postadjudication/refusal"
	"github.com/recourse-dev/recourse/postadjudication/retention"
)

// Exit codes of the program.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitSchema      = 4
	ExitOther       = 5 // another person has to run the stored plan
)

// codeError is an error with its exit code.
type codeError struct {
	code int
	error
}

func (e *codeError) Unwrap() error { return e.error }

// WithCode returns err with an exit code.
func WithCode(code int, err error) error { return &codeError{code, err} }

// CodeOf returns the exit code of an error.
func CodeOf(err error) int {
	var known *codeError
	var field *refusal.FieldError
	var line intake.Problem
	switch {
	case errors.As(err, &known):
		return known.code
	case errors.Is(err, app.ErrOptions), errors.Is(err, textfile.ErrForm), errors.Is(err, retention.ErrRule), errors.As(err, &field), errors.As(err, &line):
		return ExitUsage
	case errors.Is(err, postadjudication.ErrSchema):
		return ExitSchema
	case unreachable(err):
		return ExitUnreachable
	}
	return ExitFailed
}

// unreachable reports whether a server did not answer or refused the connection.
func unreachable(err error) bool {
	var network *net.OpError
	var name *net.DNSError
	var refused *pq.Error
	switch {
	case errors.As(err, &network), errors.As(err, &name), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, pq.ErrSSLNotSupported):
		return true
	case errors.As(err, &refused):
		// Connection errors, authorisation, a missing database, a server that shuts down or has
		// too many connections.
		class := string(refused.Code)
		return strings.HasPrefix(class, "08") || strings.HasPrefix(class, "28") || strings.HasPrefix(class, "57P") || class == "3D000" || class == "53300"
	}
	return redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "LOADING")
}

// NotFound replaces ErrNotFound by an error that names the tenant and what is missing.
func NotFound(err error, tenant, what string) error {
	if errors.Is(err, refusal.ErrNotFound) {
		return WithCode(ExitFailed, fmt.Errorf("tenant %s has no %s", tenant, what))
	}
	return err
}

// CaseName returns how the flags of a command name a case: by its id, by a run of it, or by its
// transaction.
func CaseName(caseID, run, transaction string) string {
	switch {
	case caseID != "":
		return "case " + caseID
	case run != "":
		return "run " + run
	}
	return "transaction " + transaction
}
