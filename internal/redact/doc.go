// Package redact removes secrets and account numbers from text before it is stored.
//
// It is the only redaction of the module, applied to all text of receipts, errors, log lines and events. [Text]
// rewrites free text, and cuts it only after that. It is not applied to ids, amounts or times that are values of
// their own, and keeps those it finds inside text. [Find] and [ContainsSecret] refuse input and rewrite nothing: Find
// names the first secret in submitted JSON, ContainsSecret checks ids. [FindUnless] and [HoldsMoreThanCards] do so where
// the caller knows that digits are a reference of a bank. [TrimPartial] is for callers that have only the
// beginning of a text.
//
// Secrets are:
//
//   - card numbers: 13 to 19 digits that pass the Luhn check, written together or with spaces or dashes between;
//     those that a scheme prints in groups, with any signs between them; with them the further fields of a magnetic
//     stripe;
//   - account numbers: IBANs of a known country, of its length, that pass the mod 97 check, in any case and grouping;
//   - credentials: Authorization and Cookie headers, Bearer and Basic tokens, the value of a secret name
//     (password, token, secret, api_key, ...) in key=value, key: value, JSON, XML and query strings, the user part of
//     a URL, private key blocks, and keys with a public format (sk_live_, AKIA, JWT, ...).
//
// Secrets are also found in encoded text: with digits of other scripts, with invisible characters in between,
// escaped as in JSON, URLs, HTML or mail, between tags, and in base64, base32 or hexadecimal. testdata/secrets.txt has the known forms, and names the forms that
// are not found; testdata/innocent.txt has texts that must be kept.
//
// UUIDs, hexadecimal digests, dates, times and integers that are not such numbers are kept.
//
// The package is pure: standard library only, no I/O, no clock, no state. It knows nothing of receipts or payloads.
package redact
