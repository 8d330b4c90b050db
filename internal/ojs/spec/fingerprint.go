package spec

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// fingerprint returns the SHA-256 of the canonical JSON of the chosen parts of the job, as the document on
// unique jobs computes it: {"args":...,"meta":{...},"queue":"...","type":"..."}, of which type is always
// there. With args_keys, args is one object of the named members; each must be a member of exactly one of
// the arguments. Members of meta that are missing are left out.
//
// The document wants texts in Unicode NFC, too. That is not done: texts that differ in their bytes are
// different here, so that two spellings of one text are no duplicates.
func (p *jobParser) fingerprint(r reader, s selected) [32]byte {
	chosen := object{{"type", quoted(p.job.Type)}}
	if slices.Contains(s.dimensions, "queue") {
		chosen.set("queue", quoted(p.job.Queue))
	}
	if slices.Contains(s.dimensions, "args") {
		args, _ := p.top.get("args")
		if len(s.argsKeys) > 0 {
			args = selectArgs(r, args, s.argsKeys)
		}
		chosen.set("args", args)
	}
	if slices.Contains(s.dimensions, "meta") {
		meta, _ := p.stored.get("meta")
		chosen.set("meta", members(meta).without(func(m member) bool { return !slices.Contains(s.metaKeys, m.name) }).encode())
	}
	if *r.refusal != nil {
		return [32]byte{}
	}
	return sha256.Sum256(canonical(chosen.encode()))
}

// selectArgs returns an object of the named members of the arguments.
func selectArgs(r reader, args json.RawMessage, names []string) json.RawMessage {
	var out object
	values := valuesOf(args, names)
	for _, name := range names {
		switch had := values[name]; len(had) {
		case 0:
			r.wrong("args_keys", "names a member that no argument has")
		case 1:
			out.set(name, had[0])
		default:
			r.wrong("args_keys", "names a member that several arguments have")
		}
	}
	return out.encode()
}

// canonical returns a checked JSON text as RFC 8785 has it, which reads numbers as doubles. A number that
// is another one after that, such as 2^53+1 and 1e400, is replaced before by an object with its exact
// digits, under a name that no client can give. So numbers that are equal stay equal, and others differ.
func canonical(text []byte) []byte {
	out := jsontext.Value(slices.Clone(exactNumbers(text)))
	if err := out.Canonicalize(); err != nil { // of a text that was not checked
		return text
	}
	return out
}

// exactNumbers replaces the numbers of a JSON text that a double does not hold.
func exactNumbers(text []byte) []byte {
	var out []byte
	copied := 0
	for p := 0; p < len(text); {
		switch c := text[p]; {
		case c == '"':
			p = stringEnd(text, p)
		case c == '-' || '0' <= c && c <= '9':
			end := p + 1
			for end < len(text) && strings.IndexByte("+-.eE0123456789", text[end]) >= 0 {
				end++
			}
			if exact, is := asDouble(string(text[p:end])); !is {
				out = append(out, text[copied:p]...)
				out = object{{"\x00", quoted(exact)}}.appendTo(out)
				copied = end
			}
			p = end
		default:
			p++
		}
	}
	if out == nil {
		return text
	}
	return append(out, text[copied:]...)
}

// asDouble reports whether a number is the same after it was read as a double and written again. If not,
// exact is its decimal.
func asDouble(text string) (exact string, is bool) {
	if len(text) <= 15 && !strings.ContainsAny(text, ".eE") {
		return "", true
	}
	exact = decimal(text)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return exact, false
	}
	return exact, decimal(strconv.FormatFloat(f, 'e', -1, 64)) == exact
}

// decimal returns a number as its digits without zeros at either end, and the power of ten that they are
// multiplied by: 1.50e3 and 1500 are 15e2. An exponent that no int64 holds is kept as it is, with what is
// to be added to it.
func decimal(text string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	sign := ""
	if mantissa[0] == '-' {
		sign, mantissa = "-", mantissa[1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return "0"
	}
	shift := len(digits) - len(significant) - len(fraction)
	exponent = strings.TrimPrefix(exponent, "+")
	if exponent == "" {
		exponent = "0"
	}
	n, err := strconv.ParseInt(exponent, 10, 62)
	if err != nil {
		return sign + significant + "e" + exponent + "+" + strconv.Itoa(shift)
	}
	return sign + significant + "e" + strconv.FormatInt(n+int64(shift), 10)
}
