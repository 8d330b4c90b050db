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

// Protection is how a connection to a server is protected from being read or answered by others.
type Protection string

// The protections.
const (
	Local      Protection = "local"      // the connection stays on this machine
	Verified   Protection = "verified"   // TLS with a verified server
	Unverified Protection = "unverified" // TLS without verification of the server
	Plaintext  Protection = "clear"      // no TLS
)

// Safe reports whether no third party can read or answer.
func (p Protection) Safe() bool { return p == Local || p == Verified }

// The servers that Options.InsecureServers may name.
const (
	PostgresServer = "postgres"
	RedisServer    = "redis"
	EscrowServer   = "escrow"
	TraceCollector = "traces"
)

var serversBeyond = []string{PostgresServer, RedisServer, EscrowServer, TraceCollector}

// Route is the connection to a server.
type Route struct {
	Server     string // PostgresServer, RedisServer, EscrowServer or TraceCollector
	Name       string // for people; never the URL, which may contain a secret
	Protection Protection
	Trusted    bool // listed in Options.InsecureServers
	Remedy     string
}

// bindInsecure defines --insecure-servers.
func (o *Options) bindInsecure(f *pflag.FlagSet) {
	f.StringSliceVar(&o.InsecureServers, "insecure-servers", nil, "servers beyond this machine that may be reached without verified TLS: "+
		strings.Join(serversBeyond, ", ")+" (default $"+InsecureVariable+")")
}

// Routes returns the connections to all servers that the options name. The error is ErrOptions.
func (o *Options) Routes() ([]Route, error) {
	for _, name := range o.InsecureServers {
		if !slices.Contains(serversBeyond, name) {
			return nil, optionError("--insecure-servers names %q: want one of %s", name, strings.Join(serversBeyond, ", "))
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
		add(PostgresServer, "Postgres", "use sslmode=verify-full in its URL", p)
	}
	if o.RedisURL != "" {
		u, err := parseRedisURL(o.RedisURL)
		if err != nil {
			return nil, err
		}
		add(RedisServer, "Redis", "use a rediss:// URL", u.protection())
	}
	if o.EscrowURL != "" {
		p, err := httpProtection("the escrow service", o.EscrowURL)
		if err != nil {
			return nil, err
		}
		add(EscrowServer, "the escrow service", "use an https URL", p)
	}
	named, err := o.targets()
	if err != nil {
		return nil, err
	}
	for _, t := range named {
		if t.url == "" {
			continue
		}
		p, err := httpProtection("the escrow service "+t.name, t.url)
		if err != nil {
			return nil, err
		}
		add(EscrowServer, "the escrow service "+t.name, "use an https URL", p)
	}
	if o.TracesURL != "" {
		p, err := httpProtection("the trace collector", o.TracesURL)
		if err != nil {
			return nil, err
		}
		add(TraceCollector, "the trace collector", "use an https URL", p)
	}
	return out, nil
}

// CheckTransport returns ErrOptions if a server beyond this machine is reached without verified
// TLS and InsecureServers does not list it.
func (o *Options) CheckTransport() error {
	routes, err := o.Routes()
	if err != nil {
		return err
	}
	for _, r := range routes {
		if !r.Protection.Safe() && !r.Trusted {
			return optionError("%s is %s; %s, or add --insecure-servers %s if the network to it is trusted", r.Name, r.Protection, r.Remedy, r.Server)
		}
	}
	return nil
}

func postgresProtection(databaseURL string) (Protection, error) {
	normal, err := pgurl.Normalize(databaseURL)
	if err != nil {
		return "", optionError("%w", err)
	}
	c, err := pq.NewConfig(normal)
	if err != nil {
		return "", optionError("%w", pgurl.ErrUnreadable) // the driver's error repeats the URL
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
	case mode == pq.SSLModeVerifyCA: // accepts a certificate of any system CA for any name
		return Unverified, nil
	case mode == pq.SSLModeRequire || mode == "":
		return Unverified, nil
	}
	return Plaintext, nil // includes sslmode=prefer: an attacker on the network can refuse TLS
}

// localHost reports whether a Postgres host is this machine or a Unix socket.
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

func httpProtection(name, text string) (Protection, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil, !strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https"), u.Hostname() == "":
		return "", optionError("%s has no URL that begins with https:// and names a host (http:// on this machine)", name) // the parser's error repeats the URL
	case loopbackHost(u.Hostname()):
		return Local, nil
	case strings.EqualFold(u.Scheme, "https"):
		return Verified, nil
	}
	return Plaintext, nil
}

// InsecureFrom returns InsecureServers from the environment.
func InsecureFrom(getenv func(string) string) []string {
	return strings.FieldsFunc(getenv(InsecureVariable), func(r rune) bool { return r == ',' || r == ' ' })
}

// ProxyEnabled reports whether the environment allows its proxies. A proxy can read plaintext
// requests, so proxies are off by default.
func ProxyEnabled(getenv func(string) string) bool {
	asked, err := strconv.ParseBool(getenv(ProxyVariable))
	return err == nil && asked
}

// loopbackHost reports whether a host is loopback without a DNS lookup.
func loopbackHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

// String describes the protection for people.
func (p Protection) String() string {
	switch p {
	case Local:
		return "on this machine"
	case Verified:
		return "verified TLS"
	case Unverified:
		return "beyond this machine, and others on the network could answer in its place"
	}
	return "beyond this machine, and the connection is not encrypted"
}
