package escrowhttp

import (
	"context"
	"errors"
	"net"
	"net/url"
	"syscall"

	"github.com/recourse-dev/recourse/postadjudication"
)

// transportFailure classifies a request that got no status. It is proven unsent only
// when no connection was made and the error says so too: a transport that does
// not report connections must not turn a lost answer into a proof.
func (x *exchange) transportFailure(ctx context.Context, err error) postadjudication.Answer {
	a := postadjudication.Answer{
		Class: postadjudication.Unknown, Retry: true,
		Type: TypeNoAnswer, Message: oneLine(cause(err).Error()),
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		a.Type = TypeTimeout
	case ctx.Err() != nil:
	case !x.connected.Load() && isDialError(err):
		a.Class, a.Type = postadjudication.NotExecuted, TypeConnectionRefused
	case isTimeout(err):
		a.Type = TypeTimeout
	}
	return a
}

// unsentAnswer is the answer when all but the last byte of a request may have left: the
// service has no whole request to execute.
func unsentAnswer(stale error) postadjudication.Answer {
	return postadjudication.Answer{Class: postadjudication.NotExecuted, Retry: true, Type: TypeUnsent, Message: oneLine(stale.Error())}
}

// isDialError reports whether the error is that of a dial.
func isDialError(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) ||
		errors.As(err, &op) && op.Op == "dial"
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// cause leaves out the method and URL that net/http puts before its errors: they
// differ between operation keys and would keep equal failures apart.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
