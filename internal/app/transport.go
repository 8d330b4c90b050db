package app

import (
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lib/pq"
	"github.com/spf13/pflag"

	"github.com/recourse-dev/recourse/internal/pgurl"
)

// Protection is what keeps others from reading, or answering, what goes to a server.
type Protection string

// The protections.
const (
	Local      Protection = "local"      // it does not leave this machine
	Verified   Protection = "verified"   // by TLS, and the server shows who it is
	Unverified Protection = "unverified" // by TLS, and anybody may answer
	Plaintext  Protection = "clear"      // by nothing
)

// Safe reports whether nobody on the way reads or answers.
func (p Protection) Safe() bool { return p == Local || p == Verified }

// The servers that Options.Insecure may name.
const (
	PostgresServer = "postgres"
	RedisServer    = "redis"
	EscrowServer   = "escrow"
)

// Route is the way to a server.
type Route struct {
	Server     string // PostgresServer, RedisServer or EscrowServer
	Name       string // as a person calls it; never its URL, which may hold a secret
	Protection Protection
	Trusted    bool // an operator says that the way is trusted
	Remedy     string
}

// bindInsecure defines the flag that says which ways are trusted without TLS.
func (o *Options) bindInsecure(f *pflag.FlagSet) {
	f.StringSliceVar(&o.InsecureServers, "insecure-servers", nil, "servers beyond this machine that are reached without TLS that shows who they are: "+
		PostgresServer+", "+RedisServer+", "+EscrowServer+" (default $"+InsecureVariable+")")
}

// Routes are the ways to all servers that the options name. The error is ErrOptions.
func (o *Options) Routes() ([]Route, error) {
	for _, name := range o.InsecureServers {
		if !slices.Contains([]string{PostgresServer, RedisServer, EscrowServer}, name) {
			return nil, optionError("--insecure-servers names %q: want %s, %s or %s", name, PostgresServer, RedisServer, EscrowServer)
		}
	}
	var out []Route
	add := func(server, name, remedy string, p Protection) {
		out = append(out, Route{server, name, p, slices.Contains(o.InsecureServers, server), remedy})
	}
	if o.DatabaseURL != "" {
		p, err := postgresProtection(o.DatabaseURL)
		if err != nil {
			return nil, err
		}
		add(PostgresServer, "Postgres", "say sslmode=verify-full in its URL", p)
	}
	if o.RedisURL != "" {
		u, err := parseRedisURL(o.RedisURL)
		if err != nil {
			return nil, err
		}
		add(RedisServer, "Redis", "name it by a rediss:// URL", u.protection())
	}
	if o.EscrowURL != "" {
		add(EscrowServer, "the escrow service", "name it by an https URL", httpProtection(o.EscrowURL))
	}
	named, err := o.targets()
	if err != nil {
		return nil, err
	}
	for _, t := range named {
		if t.url != "" {
			add(EscrowServer, "the escrow service "+t.name, "name it by an https URL", httpProtection(t.url))
		}
	}
	return out, nil
}

// CheckTransport refuses servers beyond this machine that are reached without TLS that shows who
// they are, unless the options say that the way is trusted. The error is ErrOptions.
func (o *Options) CheckTransport() error {
	routes, err := o.Routes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		if !r.Protection.Safe() && !r.Trusted {
			return optionError("%s is %s; %s, or --insecure-servers %s where the way to it is trusted", r.Name, r.Protection, r.Remedy, r.Server)
		}
	}
	return nil
}

func (p Protection) risk() string {
	if p == Unverified {
		return "anybody on the way may answer in its place"
	}
	return "what goes there travels in the clear"
}

func postgresProtection(databaseURL string) (Protection, error) {
	normal, err := pgurl.Normalize(databaseURL)
	if err != nil {
		return "", optionError("%w", err)
	}
	c, err := pq.NewConfig(normal)
	if err != nil {
		return "", optionError("%w", pgurl.ErrUnreadable) // the driver's error repeats what it can't read
	}
	local := localHost(c.Host, c.Hostaddr)
	for _, other := range c.Multi {
		local = local && localHost(other.Host, other.Hostaddr)
	}
	switch mode := c.SSLMode; {
	case local:
		return Local, nil
	case mode == pq.SSLModeVerifyFull, mode == pq.SSLModeVerifyCA && c.SSLRootCert != "":
		return Verified, nil
	case mode == pq.SSLModeVerifyCA: // by any authority of the system, for whatever name
		return Unverified, nil
	case mode == pq.SSLModeRequire || mode == "":
		return Unverified, nil
	}
	return Plaintext, nil // also where TLS is only preferred: whoever is on the way can refuse it
}

// localHost reports whether a host of Postgres is this machine, or a socket of it.
func localHost(host string, addr netip.Addr) bool {
	if addr.IsValid() {
		return addr.IsLoopback()
	}
	return host == "" || filepath.IsAbs(host) || strings.HasPrefix(host, "@") || loopbackHost(host)
}

func (u *redisURL) protection() Protection {
	remote := slices.ContainsFunc(u.addrs, func(addr string) bool {
		host, _, err := net.SplitHostPort(addr)
		return err != nil || !loopbackHost(host)
	})
	switch {
	case !remote:
		return Local
	case u.tls:
		return Verified
	}
	return Plaintext
}

func httpProtection(text string) Protection {
	u, err := url.Parse(text)
	switch {
	case err != nil: // refused when it is opened
		return Plaintext
	case loopbackHost(u.Hostname()):
		return Local
	case strings.EqualFold(u.Scheme, "https"):
		return Verified
	}
	return Plaintext
}

// InsecureFrom reads from the environment which servers' ways are trusted.
func InsecureFrom(getenv func(string) string) []string {
	return strings.FieldsFunc(getenv(InsecureVariable), func(r rune) bool { return r == ',' || r == ' ' })
}

// ProxyEnabled reports whether the environment asks for its proxies to be used. They read what is
// sent in the clear, so that they are never used unasked.
func ProxyEnabled(getenv func(string) string) bool {
	asked, err := strconv.ParseBool(getenv(ProxyVariable))
	return err == nil && asked
}

// loopbackHost reports whether a host is this machine whoever resolves its name.
func loopbackHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

// String says for people what others can do on the way.
func (p Protection) String() string {
	switch p {
	case Local:
		return "on this machine"
	case Verified:
		return "shows who it is"
	}
	return "beyond this machine, and " + p.risk()
}
