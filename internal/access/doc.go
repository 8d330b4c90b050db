// Package access says who may do what: roles, actions, the table of both, and the format
// of access keys.
//
// # Promise
//
// A key is "rck_<prefix>_<secret>": 12 and 43 letters and digits; the secret has 256 random
// bits. Only the SHA-256 of the whole key is stored, so a stolen table gives access to
// nothing. A comparison takes the same time for every wrong secret. An action that the table
// does not allow is refused; an unknown role allows nothing.
//
//	Mint ──▶ token (shown once) + Key (stored)
//	token ──▶ Keyring.Verify ──▶ Store.FindKey ──▶ Key ──▶ May(key.Roles, action)
//
// A Keyring caches a found key for CacheTTL. A revoked key is refused everywhere at most
// that much later, an expired key at once.
//
// # Dependencies
//
// It knows neither HTTP nor SQL nor settlements.
package access
