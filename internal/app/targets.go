package app

import (
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/postadjudication/escrow"
)

// target is an escrow service beside the default one.
type target struct {
	name string
	url  string // empty: another name for the default one
}

// BindTargets defines the flag that names the escrow services beside the default one.
func (o *Options) BindTargets(f *pflag.FlagSet) {
	f.StringArrayVar(&o.Targets, "target", nil, "another escrow service that adjudications may name as their target, besides "+escrow.DefaultTarget+": NAME=URL, or NAME alone for another name of --escrow; repeatable (default $"+TargetsVariable+", separated by spaces)")
	f.StringArrayVar(&o.PaymentQueues, "payment-queue", nil, "`queue` from which remote workers fetch adjudications, which name it as their target: "+escrow.RemotePrefix+"NAME; repeatable (default $"+PaymentQueuesVariable+", separated by spaces)")
}

// authorizationVariable returns the environment variable of the Authorization header for a target.
func authorizationVariable(name string) string {
	return AuthorizationVariable + "_" + strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToUpper(r)
		}
		return '_'
	}, name)
}

// targets parses the options. Two names with one URL are an error: each would have its own circuit
// breaker, and the other name would bypass an open one. The error is ErrOptions.
func (o *Options) targets() ([]target, error) {
	out := make([]target, 0, len(o.Targets))
	endpoints, headers := []string{endpoint(o.EscrowURL)}, map[string]string{}
	for _, text := range o.Targets {
		name, at, given := strings.Cut(text, "=")
		t := target{name: name, url: at}
		switch {
		case name == "" || given && at == "":
			return nil, optionError("--target %q is neither NAME nor NAME=URL", text)
		case name == escrow.DefaultTarget || slices.ContainsFunc(out, func(known target) bool { return known.name == name }):
			return nil, optionError("--target names %q twice; %s is the name of --escrow", name, escrow.DefaultTarget)
		case given && slices.Contains(endpoints, endpoint(at)):
			return nil, optionError("--target %s has the URL of another target: an escrow service has one circuit breaker; for another name of --escrow use --target %s", name, name)
		case given && headers[authorizationVariable(name)] != "":
			return nil, optionError("--target %s and %s would share the Authorization header in one variable, %s", name, headers[authorizationVariable(name)], authorizationVariable(name))
		}
		if given {
			endpoints, headers[authorizationVariable(name)] = append(endpoints, endpoint(at)), name
		}
		out = append(out, t)
	}
	return out, nil
}

// endpoint returns a canonical form of a URL, so that two spellings of one endpoint are equal. It
// returns text unchanged if that is not a URL.
func endpoint(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return text
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") + ":" + port + strings.TrimRight(u.Path, "/")
}
