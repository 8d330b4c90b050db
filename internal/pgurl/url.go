// Package pgurl reads the URLs by which people name a Postgres, as libpq's manual
// writes them, and returns them in the form that lib/pq reads. Errors never repeat a
// URL, which may hold a password. It imports the standard library only.
package pgurl

import (
	"errors"
	"net"
	"net/url"
	"path"
	"strings"
)

const example = "it looks like postgres://user@host:5432/name?sslmode=verify-full"

// What is wrong with a URL.
var (
	ErrScheme     = errors.New("the Postgres URL must begin with postgres://; " + example)
	ErrUnreadable = errors.New("the Postgres URL can't be read; " + example)
	ErrNoHost     = errors.New("the Postgres URL names no host; " + example)
	ErrHostsTwice = errors.New("the Postgres URL names several hosts before the name of the database, and others as a parameter: leave one of them out")
)

const defaultPort = "5432"

// Normalize returns the URL of the same database that lib/pq reads. Several hosts, each
// with a port of its own (postgres://u@h1:5433,h2:5434/db), and a socket in the place of
// the host (postgres://%2Frun%2Fpostgresql/db) become parameters; lib/pq would take the
// first for one host of a strange name, and refuses the other.
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

// WithApplicationName is Normalize, with a name by which the server shows the connections
// (pg_stat_activity) unless the URL or the environment gives application_name.
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

// normalizeOneHost reads a URL with one host at most. As libpq has it, a parameter takes the place
// of what stands before the name of the database; lib/pq would take either.
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

// splitHosts takes a list of hosts apart, each with or without a port.
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
