package settlement_test

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"

	"github.com/recourse-dev/recourse/settlement"
)

// sumOf adds up amounts.
func sumOf(amounts ...int64) (s settlement.Sum) {
	for _, minor := range amounts {
		s = s.Plus(settlement.SumOf(minor))
	}
	return s
}

func TestASumIsExactBeyondInt64(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]settlement.Sum{
		"0":                    {},
		"-1":                   sumOf(-1),
		"12":                   sumOf(10, 5, -3),
		"9007199254740991":     sumOf(settlement.MaxMinor),
		"9223372036854775808":  sumOf(math.MaxInt64, 1),
		"-9223372036854775809": sumOf(math.MinInt64, -1),
		"27670116110564327421": sumOf(math.MaxInt64, math.MaxInt64, math.MaxInt64),
	} {
		if s.String() != want {
			t.Errorf("%s, want %s", s, want)
		}
		if parsed, err := settlement.ParseSum(want); err != nil || parsed != s {
			t.Errorf("%s is read as %s, %v", want, parsed, err)
		}
	}
	most := settlement.SumOf(math.MaxInt64)
	if got, want := most.Plus(most).In("IRR"), "184,467,440,737,095,516.14 IRR"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if f := most.Plus(most).Float(); f != 2*float64(math.MaxInt64) || sumOf(-7).Float() != -7 {
		t.Error(f)
	}
	if sumOf(-3).Sign() != -1 || sumOf(-3, 3).Sign() != 0 || most.Plus(most).Sign() != 1 {
		t.Error("a sign")
	}
}

func TestASumIsATextInJSONWhereANumberWouldNotBeExact(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]settlement.Sum{
		`0`:                   {},
		`1000`:                sumOf(1000),
		`-9007199254740991`:   sumOf(-settlement.MaxMinor),
		`9007199254740991`:    sumOf(settlement.MaxMinor),
		`"9007199254740992"`:  sumOf(settlement.MaxMinor, 1),
		`"-9007199254740992"`: sumOf(-settlement.MaxMinor, -1),
	} {
		if text, err := json.Marshal(s); err != nil || string(text) != want {
			t.Errorf("%s is written %s, want %s; %v", s, text, want, err)
		}
		var back settlement.Sum
		if err := json.Unmarshal([]byte(want), &back); err != nil || back != s {
			t.Errorf("%s is read as %s, %v", want, back, err)
		}
	}
	for _, text := range []string{`"`, `""`, `"1`, `1.5`, `1e3`, `"0x1f"`, `"007"`, `"+1"`, `"-0"`, `"1_000"`, `true`, `"170141183460469231731687303715884105728"`} {
		var s settlement.Sum
		if err := s.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s is read as %s", text, s)
		}
	}
}

func TestASumIsReadFromADatabase(t *testing.T) {
	t.Parallel()
	for _, value := range []any{int64(-7), []byte("-7"), "-7"} {
		var s settlement.Sum
		if err := s.Scan(value); err != nil || s != sumOf(-7) {
			t.Errorf("%T: %s, %v", value, s, err)
		}
	}
	for _, value := range []any{nil, 1.5, []byte("1.5"), true} {
		var s settlement.Sum
		if s.Scan(value) == nil {
			t.Errorf("%v is read as %s", value, s)
		}
	}
}

func TestSumsAreKeptByCurrency(t *testing.T) {
	t.Parallel()
	s := settlement.Sums{}
	s.Add("USD", sumOf(150))
	s.Add("EUR", sumOf(1))
	s.Add("USD", sumOf(math.MaxInt64))
	s.Add("", sumOf(9))
	if got, want := s.String(), "0.01 EUR, 92,233,720,368,547,759.57 USD"; got != want || len(s) != 2 {
		t.Errorf("%s, want %s", got, want)
	}
}

func FuzzSum(f *testing.F) {
	f.Add(int64(math.MaxInt64), int64(math.MinInt64), int64(-1))
	f.Fuzz(func(t *testing.T, a, b, c int64) {
		want := new(big.Int).Add(big.NewInt(a), new(big.Int).Add(big.NewInt(b), big.NewInt(c)))
		s := sumOf(a, b, c)
		if s.String() != want.String() || s.Sign() != want.Sign() {
			t.Errorf("%s, want %s", s, want)
		}
		if minor, ok := s.Minor(); ok != (new(big.Int).Abs(want).Cmp(big.NewInt(settlement.MaxMinor)) <= 0) || ok && minor != want.Int64() {
			t.Errorf("%s as an amount: %d, %t", s, minor, ok)
		}
	})
}
