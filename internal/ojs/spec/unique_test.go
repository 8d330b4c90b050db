package spec_test

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

func uniqueOf(t *testing.T, body string) spec.Unique {
	t.Helper()
	job := parsed(t, body)
	if job.Unique == nil {
		t.Fatalf("%s is not unique", body)
	}
	return *job.Unique
}

func TestUniqueHasTheDefaults(t *testing.T) {
	t.Parallel()
	u := uniqueOf(t, withMembers(`"unique":{}`))
	want := []spec.State{spec.Available, spec.Active, spec.Scheduled, spec.Retryable, spec.Pending}
	if u.Period != 0 || u.OnConflict != spec.Reject || !slices.Equal(u.States, want) || u.Fingerprint != sha256.Sum256([]byte(`{"type":"settlement.release"}`)) {
		t.Errorf("%+v", u)
	}
	for given, want := range map[string]spec.OnConflict{"reject": spec.Reject, "replace": spec.Replace, "replace_except_schedule": spec.ReplaceExceptSchedule, "ignore": spec.Ignore, "use_existing": spec.Ignore} {
		if u := uniqueOf(t, withMembers(`"unique":{"on_conflict":"`+given+`"}`)); u.OnConflict != want {
			t.Errorf("%s: %+v", given, u)
		}
	}
	u = uniqueOf(t, withMembers(`"unique":{"states":["completed","discarded"],"period":"P7D"}`))
	if !slices.Equal(u.States, []spec.State{spec.Completed, spec.Discarded}) || u.Period != 7*24*time.Hour {
		t.Errorf("%+v", u)
	}
	if u := uniqueOf(t, withMembers(`"unique":{"period":"P1Y"}`)); u.Period != 365*24*time.Hour {
		t.Errorf("%+v", u)
	}
}

// The canonical text of a fingerprint is that of the document on unique jobs.
func TestFingerprintsAreOfTheCanonicalText(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"type":"email.send","queue":"notifications","args":[{"user_id":42,"template":"welcome"}],"unique":{"keys":["type","queue","args"],"args_keys":["user_id"]}}`: `{"args":{"user_id":42},"queue":"notifications","type":"email.send"}`,
		`{"type":"a","args":[{"b":1,"a":[1.0,2.50e1]},"\u00e9"],"unique":{"keys":["args"]}}`:                                                                           `{"args":[{"a":[1,25],"b":1},"é"],"type":"a"}`,
		`{"type":"a","args":[],"unique":{"keys":["queue"]}}`:                                                                                                           `{"queue":"default","type":"a"}`,
		`{"type":"a","args":[],"unique":{"keys":[]}}`:                                                                                                                  `{"type":"a"}`,
		`{"type":"a","args":[],"unique":{"keys":["type","type"],"args_keys":[],"meta_keys":[]}}`:                                                                       `{"type":"a"}`,
		`{"type":"a","args":[7],"unique":{"keys":["args"],"args_keys":[]}}`:                                                                                            `{"args":[7],"type":"a"}`,
		`{"type":"a","args":[],"meta":{"t":"acme","x":1},"unique":{"keys":["meta"],"meta_keys":["t"]}}`:                                                                `{"meta":{"t":"acme"},"type":"a"}`,
		`{"type":"a","args":[],"meta":{"x":1},"unique":{"keys":["meta"],"meta_keys":["t"]}}`:                                                                           `{"meta":{},"type":"a"}`,
		`{"type":"a","args":[],"unique":{"keys":["meta"],"meta_keys":["t"]}}`:                                                                                          `{"meta":{},"type":"a"}`,
		`{"type":"a","args":[],"options":{"metadata":{"t":"acme"},"unique":{"keys":["meta"],"meta_keys":["t"]}}}`:                                                      `{"meta":{"t":"acme"},"type":"a"}`,
		`{"type":"a","args":["x",{"a":1},{"b":{"d":1,"c":2}}],"unique":{"keys":["args"],"args_keys":["b","a"]}}`:                                                       `{"args":{"a":1,"b":{"c":2,"d":1}},"type":"a"}`,
		`{"type":"a","args":[{"user_id":1}],"unique":{"key":["user_id"],"period_ms":5}}`:                                                                               `{"args":{"user_id":1},"type":"a"}`,                     // the Go client
		`{"type":"a","args":[{"user_id":1}],"unique":{"key":["type","queue","args"],"states":["active"]}}`:                                                             `{"args":[{"user_id":1}],"queue":"default","type":"a"}`, // the Python client
		`{"type":"a","args":[{"type":1}],"unique":{"key":["type","queue","args"]}}`:                                                                                    `{"args":[{"type":1}],"queue":"default","type":"a"}`,
		`{"type":"a","args":[{"type":1,"x":2}],"unique":{"key":["type","x"]}}`:                                                                                         `{"args":{"type":1,"x":2},"type":"a"}`,
		`{"type":"a","args":[],"unique":{"key":[]}}`:                                                                                                                   `{"type":"a"}`,
		`{"type":"a","args":[{"n":9007199254740991}],"unique":{"keys":["args"],"args_keys":["n"]}}`:                                                                    `{"args":{"n":9007199254740991},"type":"a"}`,
	} {
		if got := uniqueOf(t, body).Fingerprint; got != sha256.Sum256([]byte(want)) {
			t.Errorf("%s is not of %s", body, want)
		}
	}
}

func TestUniqueThatIsRefused(t *testing.T) {
	t.Parallel()
	for unique, field := range map[string]string{
		`{"keys":["argz"]}`: "keys", `{"keys":["Type"]}`: "keys", `{"keys":"type"}`: "keys", `{"keys":null}`: "keys", `{"keys":[1]}`: "keys", `{"keys":[""]}`: "keys",
		`{"keys":["meta"]}`: "meta_keys", `{"keys":["meta"],"meta_keys":null}`: "meta_keys", `{"keys":["meta"],"meta_keys":[]}`: "meta_keys", `{"meta_keys":["a"]}`: "meta_keys", `{"meta_keys":"a"}`: "meta_keys",
		`{"args_keys":["to"]}`: "args_keys", `{"keys":["args"],"args_keys":["missing"]}`: "args_keys", `{"keys":["args"],"args_keys":["twice"]}`: "args_keys", `{"keys":["args"],"args_keys":"to"}`: "args_keys",
		`{"period":"P"}`: "period", `{"period":"1h"}`: "period", `{"period":3600}`: "period", `{"period":"PT0S"}`: "period", `{"period":"-PT1H"}`: "period", `{"period":"P101Y"}`: "period",
		`{"period_ms":0}`: "period_ms", `{"period_ms":"1"}`: "period_ms", `{"period":"PT1S","period_ms":999}`: "period_ms",
		`{"states":["dead"]}`: "states", `{"states":[]}`: "states", `{"states":"active"}`: "states", `{"states":["Active"]}`: "states", `{"states":null}`: "states",
		`{"on_conflict":"update"}`: "on_conflict", `{"on_conflict":""}`: "on_conflict", `{"on_conflict":null}`: "on_conflict", `{"on_conflict":1}`: "on_conflict",
		`{"key":"to"}`: "key", `{"key":["to"],"keys":["type"]}`: "key", `{"key":["to"],"args_keys":["to"]}`: "key", `{"key":["type"]}`: "key", `{"key":["missing"]}`: "args_keys",
		`{"key":["meta","type"]}`: "meta_keys",
		`{"onconflict":"ignore"}`: "onconflict", `{"Keys":["type"]}`: "Keys",
		`{"keys":["` + strings.Repeat("x", 1025) + `"]}`: "keys", `{"args_keys":[` + strings.Repeat(`"a",`, 100) + `"a"]}`: "args_keys",
	} {
		body := `{"type":"a","args":[{"to":1,"type":2,"twice":3},{"twice":4},"to"],"meta":{"a":1},"unique":` + unique + `}`
		_, err := spec.ParseJob([]byte(body), now)
		refused(t, unique, err, 400, "invalid_request", "unique."+field)
	}
}

// Numbers that are equal give one fingerprint, and all others different ones, whatever their size: RFC 8785
// alone reads 2^53+1 as 2^53, and refuses 1e400.
func TestFingerprintsTellNumbersApart(t *testing.T) {
	t.Parallel()
	of := func(number string) [32]byte {
		return uniqueOf(t, `{"type":"a","args":[`+number+`],"unique":{"keys":["args"]}}`).Fingerprint
	}
	groups := [][]string{
		{"0", "-0", "0.0", "0e5", "-0e-7"}, {"1", "1.0", "10e-1", "1e0", "0.1E+1", "1.000"}, {"-1", "-1.0"}, {"0.1", "1e-1", "0.10"}, {"1500", "1.5e3", "15e2"},
		{"9007199254740992", "9007199254740992.0", "9007199254740992e0"}, {"9007199254740993", "9007199254740993.0", "900719925474099.3e1"}, {"-9007199254740993"}, {"9007199254740994"},
		{"1e400", "10e399", "1E+400", "1e0400"}, {"1e401"}, {"-1e400"}, {"1e-400"}, {"2e-400"}, {"1e308"}, {"1e309"}, {"5e-324"}, {"4.9e-324"},
		{"0.1000000000000000055511151231257827"}, {"0.10000000000000001"}, {"123456789012345678901234567890"}, {"123456789012345678901234567891"}, {"100000000000000000000000"}, {"1e1000"},
		{"1e99999999999999999999", "1e+99999999999999999999"}, {"1e99999999999999999998"}, {"2e99999999999999999999"}, {"1e-99999999999999999999"},
		{`"1"`}, {`"9007199254740993"`}, {`{"":"9007199254740993e0"}`}, {`"9007199254740993e0"`}, {"[1]"}, {"null"},
	}
	seen := map[[32]byte]string{}
	for _, group := range groups {
		first := of(group[0])
		if other, taken := seen[first]; taken {
			t.Errorf("%s and %s are one", group[0], other)
		}
		seen[first] = group[0]
		for _, spelling := range group[1:] {
			if of(spelling) != first {
				t.Errorf("%s and %s are two", group[0], spelling)
			}
		}
	}
}

// A fingerprint depends on the values, and neither on the order of members nor on blanks or escapes.
func TestFingerprintsDoNotDependOnTheSpelling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := drawJSON(t, 3)
		of := func(args string) [32]byte {
			job, err := spec.ParseJob([]byte(`{"type":"a","args":`+args+`,"unique":{"keys":["args"]}}`), now)
			if err != nil {
				t.Fatalf("%s: %v", args, err)
			}
			return job.Unique.Fingerprint
		}
		one := of(`[{"x":` + value + `,"y":[1,2]}]`)
		if two := of("\n[ {\"\\u0079\" : [1.0 , 20e-1], \"x\":\t" + value + " } ] "); two != one {
			t.Errorf("%s", value)
		}
		if other := of(`[{"x":[` + value + `],"y":[1,2]}]`); other == one {
			t.Errorf("%s is the same in a list", value)
		}
		if again := of(`[{"x":` + value + `,"y":[1,2]}]`); again != one {
			t.Errorf("%s is not always the same", value)
		}
	})
}
