package backend

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/client"
)

// openRemote returns the backend that asks a server.
func openRemote(sh *shell.Shell, o *Flags) (Backend, error) {
	to, err := client.New(client.Config{
		URL: o.Server, Key: sh.Getenv(KeyVariable), Tenant: o.Tenant,
		Insecure: o.insecure, ProxyFromEnvironment: app.ProxyEnabled(sh.Getenv), WrapError: remoteError,
	})
	var insecure *client.InsecureError
	switch {
	case errors.Is(err, client.ErrURL):
		return Backend{}, shell.WithCode(shell.ExitUsage, errors.New("--server must look like https://host:port, without a path, a name or a password"))
	case errors.Is(err, client.ErrKey):
		return Backend{}, shell.WithCode(shell.ExitUsage, errors.New("no access key is in $"+KeyVariable+": those look like rck_ and letters"))
	case errors.As(err, &insecure):
		return Backend{}, shell.WithCode(shell.ExitUsage, fmt.Errorf("the access key in $%s would travel to %s in the clear: name it with https, or add --insecure if nobody else can listen", KeyVariable, insecure.Host))
	case err != nil:
		return Backend{}, err
	}
	return Backend{
		DeadLetters: to.DeadLetters, Bulk: to.Bulk, Rules: to.Rules, Keys: to.Keys, Policies: to.Policies,
		Cases: to.Cases, People: to.People, OperationLogs: to.OperationLogs, close: to.Close,
	}, nil
}

// remoteError gives the error of a request the exit code that the same refusal has beside
// the database, and the words of the command line.
func remoteError(err error) error {
	var lost *client.UnreachableError
	if errors.As(err, &lost) {
		return shell.WithCode(shell.ExitUnreachable, err)
	}
	var p *client.ProblemError
	if !errors.As(err, &p) {
		return err
	}
	switch p.Code {
	case "tenant_missing":
		return shell.WithCode(shell.ExitUsage, errors.New("--tenant is missing: the server asks for no key that would say it"))
	case "key_missing":
		p.Detail = "an access key is asked for: put it in $" + KeyVariable + "; one is made by recourse keys create"
	case "tenant_mismatch":
		p.Detail = "the access key is of another tenant: leave --tenant out"
	}
	switch {
	case p.Unavailable():
		return shell.WithCode(shell.ExitUnreachable, p)
	case p.Status == http.StatusUnauthorized && p.Code != "key_missing":
		return fmt.Errorf("%w; it is the one in $%s", p, KeyVariable)
	case p.Status == http.StatusBadRequest || p.Status == http.StatusUnprocessableEntity:
		return shell.WithCode(shell.ExitUsage, p)
	}
	return p
}
