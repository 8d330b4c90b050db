// Package redact takes secrets and account numbers out of text before it is kept.
//
// It is the one redaction of the module, applied where text enters a receipt, an error, a log line or an event.
// [Text] rewrites free text, and cuts it only then; it is never given ids, amounts or times of their own, and leaves
// alone the ones it finds inside text. [Find] and [Holds] refuse at the door: Find names the first secret in submitted
// JSON, Holds is for ids. Neither rewrites anything. [Halved] is for who has only the beginning of a text.
//
// What counts as a secret:
//
//   - card numbers: 13 to 19 digits that pass the Luhn check, written together or with spaces or dashes between, and
//     those that a scheme gives out in printed groups with any other signs between; with them what a magnetic stripe
//     holds behind the number;
//   - account numbers: IBANs of a known country, of its length, that pass the mod 97 check, in any case and grouping;
//   - credentials: Authorization and Cookie headers, Bearer and Basic tokens, the value of a secret name
//     (password, token, secret, api_key, ...) in key=value, key: value, JSON, XML and query strings, the user part of
//     a URL, private key blocks, and keys whose shape is public (sk_live_, AKIA, JWT, ...).
//
// The same is found where a text does not read as it is written: in digits of other scripts, with characters between
// that are not seen, escaped as in JSON, URLs or HTML, and in base64. testdata/secrets.txt has the known forms, and
// names those that pass; testdata/innocent.txt has texts that stay.
//
// UUIDs, hexadecimal digests, dates, times and integers that are not such numbers stay as they are.
//
// The package is pure: standard library only, no I/O, no clock, no state. It knows nothing of receipts or payloads.
package redact
