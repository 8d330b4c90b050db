// Package access says who may do what: roles, actions, the one table of both, and
// the form of the keys that programs and people show.
//
// # Promise
//
// A key is "rck_<prefix>_<secret>": 12 and 43 characters of letters and digits, with
// 256 bits of chance in the secret. Only the SHA-256 of the whole is kept, so that a
// stolen table opens nothing, and comparing takes the same time whatever is wrong.
// What is not allowed in the table is refused; a role that is unknown allows nothing.
//
//	Mint ──▶ token (shown once) + Key (stored)
//	token ──▶ Keyring.Verify ──▶ Store.FindKey ──▶ Key ──▶ Key.May(action)
//
// A Keyring remembers what it found for Memory, so that a revoked key is refused
// everywhere at most that much later, and an expired one at once.
//
// # House
//
// May import the standard library and golang-lru. It knows neither HTTP nor SQL nor
// settlements: faces ask it, a Store answers it.
package access
