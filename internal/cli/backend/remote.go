package backend

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/recourse-dev/recourse/internal/app"
	"github.com/recourse-dev/recourse/internal/cli/shell"
	"github.com/recourse-dev/recourse/internal/client"
)

// openRemote returns the backend at a server.
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
		return Backend{}, shell.WithCode(shell.ExitUsage, errors.New("$"+KeyVariable+" has no access key: a key starts with rck_"))
	case errors.As(err, &insecure):
		return Backend{}, shell.WithCode(shell.ExitUsage, fmt.Errorf("the access key in $%s would be sent to %s unencrypted: use https, or add --insecure if nobody else can read the connection", KeyVariable, insecure.Host))
	case err != nil:
		return Backend{}, err
	}
	return Backend{
		DeadLetters: to.DeadLetters, Bulk: to.Bulk, Rules: to.Rules, Keys: to.Keys, Webhooks: to.Webhooks, Policies: to.Policies,
		Cases: to.Cases, People: to.People, OperationLogs: to.OperationLogs, Breakers: to.Breakers, Events: to.Events, Submit: to.Adjudications.SubmitBatch, StatsByTenant: to.DeadLetters.StatsByTenant, close: to.Close,
	}, nil
}

// remoteError gives the error of a request the exit code that it has on the database, and the
// text of the command line.
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
		return shell.WithCode(shell.ExitUsage, errors.New("--tenant is missing: this server uses no access keys"))
	case "key_missing":
		p.Detail = "the server requires an access key: put it in $" + KeyVariable + "; recourse keys create makes one"
	case "tenant_mismatch":
		p.Detail = "the access key belongs to another tenant: leave --tenant out"
	}
	switch {
	case p.Unavailable():
		return shell.WithCode(shell.ExitUnreachable, p)
	case p.Status == http.StatusUnauthorized && p.Code != "key_missing":
		return fmt.Errorf("%w; the key is the one in $%s", p, KeyVariable)
	case p.Status == http.StatusBadRequest || p.Status == http.StatusUnprocessableEntity:
		return shell.WithCode(shell.ExitUsage, p)
	}
	return p
}
