package pgurl_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lib/pq"

	"github.com/recourse-dev/recourse/internal/pgurl"
)

// The driver reads each normalized URL as libpq reads the original.
func TestTheDriverReadsNormalizedURLs(t *testing.T) {
	t.Parallel()
	type server struct {
		host string
		port uint16
	}
	for text, want := range map[string][]server{
		"postgres://u:p@h/db":                                            {{"h", 5432}},
		"postgresql://u:p@h:5433/db?sslmode=disable":                     {{"h", 5433}},
		"postgres://u:p@h1:5433,h2:5434/db?target_session_attrs=primary": {{"h1", 5433}, {"h2", 5434}},
		"postgres://u:p@h1,h2:5434,h3/db":                                {{"h1", 5432}, {"h2", 5434}, {"h3", 5432}},
		"postgres://u:p@[::1]:5433,[fe80::1],10.0.0.1/db":                {{"::1", 5433}, {"fe80::1", 5432}, {"10.0.0.1", 5432}},
		"postgres://u:p@/db?host=h1,h2&port=5433,5434":                   {{"h1", 5433}, {"h2", 5434}},
		"postgres://u:p@h1,h2/db?sslmode=verify-full":                    {{"h1", 5432}, {"h2", 5432}},
		"postgres://u:p%2C%40@h1:1,h2:2/db":                              {{"h1", 1}, {"h2", 2}},
		"postgres://u:p@%2Frun%2Fpostgresql/db":                          {{"/run/postgresql", 5432}},
		"postgres://u:p@%2Frun%2Fpostgresql:5433/db":                     {{"/run/postgresql", 5433}},
		"postgres://u:p@/db?host=/run/postgresql":                        {{"/run/postgresql", 5432}},
		"postgres://u:p@localhost/db?host=/run/postgresql":               {{"/run/postgresql", 5432}},
		"postgres://u:p@h1:5433/db?host=a":                               {{"a", 5433}},
		"postgres://u:p@h1:5433/db?port=5434":                            {{"h1", 5434}},
	} {
		normal, err := pgurl.Normalize(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		cfg, err := pq.NewConfig(normal)
		if err != nil {
			t.Errorf("%s became %s: %v", text, normal, err)
			continue
		}
		got := []server{{cfg.Host, cfg.Port}}
		for _, m := range cfg.Multi {
			got = append(got, server{m.Host, m.Port})
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", text, got, want)
			continue
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", text, got, want)
			}
		}
		if cfg.User != "u" || cfg.Database != "db" || !strings.HasPrefix(cfg.Password, "p") {
			t.Errorf("%s: user %q, database %q, password %q", text, cfg.User, cfg.Database, cfg.Password)
		}
	}
}

func TestAnInvalidURLIsRefusedWithoutRepeatingIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"mysql://u:geheim@h/db":                  pgurl.ErrScheme,
		"host=h password=geheim":                 pgurl.ErrScheme,
		"postgres:///db":                         pgurl.ErrNoHost,
		"postgres://u:geheim@/db":                pgurl.ErrNoHost,
		"postgres://u:geheim@h1,/db":             pgurl.ErrNoHost,
		"postgres://u:geheim@h1:x,h2/db":         pgurl.ErrUnreadable,
		"postgres://u:geheim@h1:,h2/db":          pgurl.ErrUnreadable,
		"postgres://u:geheim@h:x/db":             pgurl.ErrUnreadable,
		"postgres://u:geheim@h1,h2/db?port=1,2":  pgurl.ErrHostsTwice,
		"postgres://u:geheim@h1,h2/db?host=h3":   pgurl.ErrHostsTwice,
		"postgres://u:geheim@h1,h%zz/db":         pgurl.ErrUnreadable,
		"postgres://u:geheim@h1,a%2Fb/db":        pgurl.ErrUnreadable,
		"postgres://u:geheim@h1,h2/db?sslmode=%": pgurl.ErrUnreadable,
	} {
		got, err := pgurl.Normalize(text)
		if !errors.Is(err, want) {
			t.Errorf("%s: %q, %v; want %v", text, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v repeats the password", err)
		}
	}
}
