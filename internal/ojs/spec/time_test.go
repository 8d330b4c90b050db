package spec_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/recourse-dev/recourse/internal/ojs/spec"
)

func TestTimesHaveAnExplicitZone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-11-21T10:00:00Z":             "2026-11-21T10:00:00.000Z",
		"2026-11-21T10:00:00.123Z":         "2026-11-21T10:00:00.123Z",
		"2026-11-21T10:00:00.123456Z":      "2026-11-21T10:00:00.123Z",
		"2026-11-21T10:00:00.1239999999Z":  "2026-11-21T10:00:00.123Z",
		"2026-11-21T11:00:00+02:00":        "2026-11-21T09:00:00.000Z",
		"2026-11-21T11:00:00.5-23:59":      "2026-11-22T10:59:00.500Z",
		"2026-11-21T11:00:00-00:00":        "2026-11-21T11:00:00.000Z",
		"2020-02-29T00:00:00Z":             "2020-02-29T00:00:00.000Z",
		"1970-01-01T00:00:00Z":             "1970-01-01T00:00:00.000Z",
		"9998-12-31T23:59:59.999999999Z":   "9998-12-31T23:59:59.999Z",
		"2099-12-31T23:59:59Z":             "2099-12-31T23:59:59.000Z",
		"2026-11-21T10:00:00.000000000+00": "",
		"2026-11-21T10:00:00":              "",
		"2026-11-21T10:00:00.000":          "",
		"2026-11-21 10:00:00Z":             "",
		"2026-11-21t10:00:00z":             "",
		"2026-11-21T10:00:00z":             "",
		"2026-11-21T10:00Z":                "",
		"2026-11-21T1:00:00Z":              "",
		"2026-11-21T10:00:00,5Z":           "",
		"2026-11-21T10:00:00.Z":            "",
		"2026-11-21T24:00:00Z":             "",
		"2026-11-21T10:00:60Z":             "",
		"2026-11-21T10:00:00+24:00":        "",
		"2026-11-21T10:00:00+02:60":        "",
		"2026-11-21T10:00:00+0200":         "",
		"2026-11-21T10:00:00 Z":            "",
		"2026-02-29T10:00:00Z":             "",
		"2026-11-21":                       "",
		"20261121T100000Z":                 "",
		"1700000000":                       "",
		"":                                 "",
		"0001-01-01T00:00:00Z":             "", // the zero time of a careless client
		"1969-12-31T23:59:59Z":             "",
		"1970-01-01T00:00:00+00:01":        "",
		"9999-01-01T00:00:00Z":             "",
		"9998-12-31T23:59:59-00:01":        "",
		"+PT5S":                            "",
		"2026-11-21T10:00:00Z\n":           "",
	} {
		at, err := spec.ParseTime(text)
		if (err == nil) != (want != "") || err == nil && spec.FormatTime(at) != want {
			t.Errorf("%q is %s, %v; want %q", text, at, err, want)
		}
	}
}

func TestOurTimesAreInUTCWithMilliseconds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 999_999_999, time.FixedZone("", 2*60*60))
	if got := spec.FormatTime(at); got != "2026-11-21T10:00:00.999Z" {
		t.Error(got)
	}
}

func TestTimesReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(0, 253_370_764_799_999).Draw(t, "ms")).UTC()
		got, err := spec.ParseTime(spec.FormatTime(at))
		if err != nil || !got.Equal(at) {
			t.Errorf("%s reads as %s, %v", at, got, err)
		}
	})
}

// The durations of section 7 of the reference.
func TestDurations(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"PT1S": time.Second, "PT5M": 5 * time.Minute, "PT1H": time.Hour, "P180D": 180 * day, "P1DT2H3M4.5S": day + 2*time.Hour + 3*time.Minute + 4500*time.Millisecond,
		"PT0S": 0, "P0D": 0, "PT0.000000001S": 1, "PT1.10S": 1100 * time.Millisecond, "PT36H": 36 * time.Hour, "PT90M": 90 * time.Minute, "P1D": day, "PT007S": 7 * time.Second,
		"P1Y": 365 * day, "P1M": 730 * time.Hour, "P1Y2M": 365*day + 1460*time.Hour, "P1MT1M": 730*time.Hour + time.Minute, "P100Y": 36500 * day, "P36500D": 36500 * day,
	} {
		if got, err := spec.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{
		"P", "PT", "P1DT", "P1YT", "P1W", "P1W2D", "-PT1S", "+PT1S", "PT-1S", "P0.5D", "PT0.5H", "PT1.5M", "P1.5Y", "PT1.S", "PT.5S", "PT1,5S", "PT1.0000000001S",
		"", "1S", "PT1", "P1", "PT1s", "pt1S", "T1S", "1H", "7d", "5000", "PT1S ", " PT1S", "PT1M1H", "PT1S1S", "P1H", "PT1D", "P1DT1H1", "PT1H1D", "P101Y", "P36501D", "P100YT1S",
		"PT99999999999999999999S", "P9223372036854775807D", "PT9223372036.854775807S", "P١D", "PT1S\n",
		// Each unit is within the bound, and the sum is not, or overflows.
		"P99Y1200M", "P50Y18251D", "P36500DT1S", "P99Y365DT0.000000001S", "P100Y1200M36500D", "P100Y1200M36500DT876000H", "P100Y1200M36500DT876000H52560000M3153600000S",
	} {
		if got, err := spec.ParseDuration(text); err == nil {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}

func TestDurationsReadBack(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "PT0S", -time.Second: "PT0S", time.Nanosecond: "PT0.000000001S", 1500 * time.Millisecond: "PT1.5S", time.Minute: "PT1M", 24 * time.Hour: "P1D",
		49*time.Hour + 30*time.Second: "P2DT1H30S", 180 * 24 * time.Hour: "P180D", 5 * time.Minute: "PT5M",
	} {
		if got := spec.FormatDuration(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(36500*24*time.Hour)).Draw(t, "d"))
		text := spec.FormatDuration(d)
		if got, err := spec.ParseDuration(text); err != nil || got != d {
			t.Errorf("%s is %s, which reads as %s, %v", d, text, got, err)
		}
	})
}

func TestNamesOfQueuesTypesIDsAndVersions(t *testing.T) {
	t.Parallel()
	type test struct {
		name        string
		valid       func(string) bool
		good, wrong []string
	}
	for _, c := range []test{
		{"queue", spec.ValidQueue,
			[]string{"default", "a", "0", "high-priority", "billing.invoices", "a.", "a-", "9-.", strings.Repeat("q", 128)},
			[]string{"", "Default", "-a", ".a", "a_b", "a b", "a/b", "ä", "a\n", strings.Repeat("q", 129)}},
		{"type", spec.ValidType,
			[]string{"a", "email.send", "data.etl.transform", "report_2.x9", "retry.test.invalid-max-attempts", "a-b", strings.Repeat("t", 255)},
			[]string{"", "Email.send", "email.", ".send", "email..send", "1email", "email.1send", "email.-send", "email send", "email.sEnd", "a.b\n", "ä", strings.Repeat("t", 256)}},
		{"id", spec.ValidID,
			[]string{jobID, "019539a4-b68c-7def-8000-1a2b3c4d5e6f", "019539a4-b68c-7def-bfff-1a2b3c4d5e6f"},
			[]string{"", "550e8400-e29b-41d4-a716-446655440000", "019461A8-1A2B-7C3D-8E4F-5A6B7C8D9E0F", "not-a-uuid-at-all", "019539a4b68c7def80001a2b3c4d5e6f", "{019539a4-b68c-7def-8000-1a2b3c4d5e6f}",
				"urn:uuid:019539a4-b68c-7def-8000-1a2b3c4d5e6f", "019539a4-b68c-7def-c000-1a2b3c4d5e6f", "019539a4-b68c-7def-0000-1a2b3c4d5e6f", " " + jobID, jobID + "\n"}},
		{"version", func(v string) bool { return spec.CheckVersion("OJS-Version", v) == nil },
			[]string{"1.0", "1.0.0", "1.0.0-rc.1", "1.0.3"},
			[]string{"", "1", "1.1", "2.0", "1.0.", "v1.0", "1.0 ", "1.0.0.0", "10.0", "1.0-"}},
	} {
		for _, s := range c.good {
			if !c.valid(s) {
				t.Errorf("%s %q is refused", c.name, s)
			}
		}
		for _, s := range c.wrong {
			if c.valid(s) {
				t.Errorf("%s %q is taken", c.name, s)
			}
		}
	}
	refused(t, "version", spec.CheckVersion("OJS-Version", "2.0"), 422, "unsupported", "OJS-Version")
}
