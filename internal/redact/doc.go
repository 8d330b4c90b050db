// Package redact takes secrets and account numbers out of text before it is kept.
//
// It is the one redaction of the module, applied where text enters a receipt, an error, a log line or an event.
// [Text] rewrites free text; it is never given ids, amounts or times of their own, and leaves alone the ones it
// finds inside text. [Find] refuses at the door: it names the first secret in submitted JSON and rewrites nothing.
//
// What counts as a secret:
//
//   - card numbers: 13 to 19 digits that pass the Luhn check, written together or with spaces or dashes between;
//   - account numbers: IBANs of a known country, of its length, that pass the mod 97 check, in any case;
//   - credentials: Authorization and Cookie headers, Bearer and Basic tokens, the value of a secret name
//     (password, token, secret, api_key, ...) in key=value, key: value, JSON and query strings, the user part of
//     a URL, private key blocks, and keys whose shape is public (sk_live_, AKIA, JWT, ...).
//
// UUIDs, hexadecimal digests, dates, times and integers that are not such numbers stay as they are.
//
// The package is pure: standard library only, no I/O, no clock, no state. It knows nothing of receipts or payloads.
package redact
