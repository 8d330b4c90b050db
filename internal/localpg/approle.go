//go:build unix

package localpg

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
)

// AppRole is a role of each instance that may connect, and owns nothing. Its name needs no quotes.
const AppRole = "recourse_app"

// AppURL is URL for AppRole.
func (s *Server) AppURL(database string) string {
	return s.userURL(s.port, database, url.UserPassword(AppRole, s.appPassword()))
}

// appPassword returns the password of AppRole. It follows from that of the superuser, so that a
// kept directory needs no second file, and does not tell it.
func (s *Server) appPassword() string {
	mac := hmac.New(sha256.New, []byte(s.password))
	mac.Write([]byte(AppRole))
	return hex.EncodeToString(mac.Sum(nil))
}

// makeAppRole makes AppRole unless it is there, or the server takes no writes.
func (s *Server) makeAppRole(ctx context.Context) (err error) {
	db, err := sql.Open("postgres", s.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var done bool
	if err := db.QueryRowContext(ctx, `select pg_is_in_recovery() or exists (select from pg_roles where rolname = $1)`, AppRole).Scan(&done); err != nil || done {
		return err
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf("create role %s login password '%s'", AppRole, s.appPassword()))
	return err
}
