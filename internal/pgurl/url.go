// Package pgurl reads Postgres URLs as libpq's manual specifies them, and returns them in the
// form that lib/pq reads. Its errors never contain a URL, which may have a password. It imports
// the standard library only.
package pgurl

import (
	"errors"
	"net"
	"net/url"
	"path"
	"strings"
)

const example = "it looks like postgres://user@host:5432/name?sslmode=verify-full"

// Errors of a URL.
var (
	ErrScheme     = errors.New("the Postgres URL must begin with postgres://; " + example)
	ErrUnreadable = errors.New("the Postgres URL can't be read; " + example)
	ErrNoHost     = errors.New("the Postgres URL names no host; " + example)
	ErrHostsTwice = errors.New("the Postgres URL names several hosts before the database name, and others as a parameter: leave one of the two out")
)

const defaultPort = "5432"

// Normalize returns the URL of the same database in the form that lib/pq reads. Several hosts,
// each with its port (postgres://u@h1:5433,h2:5434/db), and a socket instead of a host
// (postgres://%2Frun%2Fpostgresql/db) become parameters; lib/pq would take the first for one
// host with a strange name, and refuses the second.
func Normalize(text string) (string, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || scheme != "postgres" && scheme != "postgresql" {
		return "", ErrScheme
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	authority, tail := rest[:end], rest[end:]
	at := strings.LastIndex(authority, "@") + 1
	user, hosts := authority[:at], authority[at:]
	if !strings.ContainsAny(hosts, ",%") {
		return normalizeOneHost(text)
	}
	u, err := url.Parse(scheme + "://" + user + tail)
	if err != nil {
		return "", ErrUnreadable
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", ErrUnreadable
	}
	if q.Has("host") || q.Has("hostaddr") || q.Has("port") {
		return "", ErrHostsTwice
	}
	names, ports, err := splitHosts(hosts)
	if err != nil {
		return "", err
	}
	q.Set("host", strings.Join(names, ","))
	q.Set("port", strings.Join(ports, ","))
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// WithApplicationName is Normalize, and sets fallback_application_name: the server shows that
// name for the connections (pg_stat_activity), unless the URL or the environment gives
// application_name.
func WithApplicationName(text, application string) (string, error) {
	normal, err := Normalize(text)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(normal)
	if err != nil {
		return "", ErrUnreadable
	}
	q := u.Query()
	q.Set("fallback_application_name", application)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// normalizeOneHost reads a URL with at most one host. As in libpq, a parameter overrides
// the part before the database name; lib/pq could use either.
func normalizeOneHost(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", ErrUnreadable
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", ErrUnreadable
	}
	hasHost := q.Get("host") != "" || q.Get("hostaddr") != ""
	switch {
	case u.Host == "" && !hasHost:
		return "", ErrNoHost
	case u.Host == "" || !hasHost && q.Get("port") == "":
		return text, nil
	}
	if q.Get("host") == "" && u.Hostname() != "" {
		q.Set("host", u.Hostname())
	}
	if q.Get("port") == "" && u.Port() != "" {
		q.Set("port", u.Port())
	}
	u.Host, u.RawQuery = "", q.Encode()
	return u.String(), nil
}

// splitHosts splits a list of hosts, each with or without a port.
func splitHosts(hosts string) (names, ports []string, err error) {
	for item := range strings.SplitSeq(hosts, ",") {
		name, port := item, defaultPort
		if host, own, err := net.SplitHostPort(item); err == nil {
			name, port = host, own
		} else if strings.HasPrefix(item, "[") && strings.HasSuffix(item, "]") {
			name = item[1 : len(item)-1]
		}
		if name, err = url.PathUnescape(name); err != nil {
			return nil, nil, ErrUnreadable
		}
		switch {
		case name == "":
			return nil, nil, ErrNoHost
		case strings.ContainsAny(name, ",'\\ ") || !path.IsAbs(name) && strings.Contains(name, "/"):
			return nil, nil, ErrUnreadable
		case strings.Trim(port, "0123456789") != "" || port == "":
			return nil, nil, ErrUnreadable
		}
		names, ports = append(names, name), append(ports, port)
	}
	return names, ports, nil
}
