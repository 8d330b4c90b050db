package door

import (
	"errors"
	"net/http"

	"github.com/recourse-dev/recourse/internal/access"
)

// endedKey returns the refusal of a key that has ended while it was used, for an error of access.Keyring.
// Others it returns as they are. It counts no failure: the request showed a valid key.
func endedKey(err error) error {
	switch {
	case errors.Is(err, access.ErrUnknown):
		return NewRefusal(http.StatusUnauthorized, "key_invalid", "there is no such access key")
	case errors.Is(err, access.ErrExpired):
		return NewRefusal(http.StatusUnauthorized, "key_expired", "the access key has expired")
	case errors.Is(err, access.ErrRevoked):
		return NewRefusal(http.StatusUnauthorized, "key_revoked", "the access key was revoked")
	}
	return err
}
