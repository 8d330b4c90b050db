package settlement_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/recourse-dev/recourse/settlement"
)

func TestMoneyIsWrittenInMajorUnits(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]settlement.Money{
		"1,234.50 EUR":                   {123450, "EUR"},
		"0.05 EUR":                       {5, "EUR"},
		"0.00 EUR":                       {0, "EUR"},
		"999.99 USD":                     {99999, "USD"},
		"1,000.00 USD":                   {100000, "USD"},
		"-12.34 USD":                     {-1234, "USD"},
		"-0.01 USD":                      {-1, "USD"},
		"1,234,567 JPY":                  {1234567, "JPY"},
		"0 JPY":                          {0, "JPY"},
		"1.234 KWD":                      {1234, "KWD"},
		"0.0001 CLF":                     {1, "CLF"},
		"90,071,992,547,409.91 EUR":      {settlement.MaxMinor, "EUR"},
		"-92,233,720,368,547,758.08 EUR": {math.MinInt64, "EUR"},
		`100 minor units of "XXX"`:       {100, "XXX"},
		`7 minor units of ""`:            {7, ""},
	} {
		if got := m.String(); got != want {
			t.Errorf("%+v is written %q, want %q", m, got, want)
		}
	}
}

func TestMoneyToMoveIsPositiveAndOfAnActiveCurrency(t *testing.T) {
	t.Parallel()
	for _, m := range []settlement.Money{{1, "EUR"}, {settlement.MaxMinor, "XOF"}, {5, "XCG"}, {5, "ZWG"}, {5, "XAD"}, {5, "SLE"}} {
		if err := m.Validate("amount"); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for _, c := range []struct {
		m     settlement.Money
		field string
	}{
		{settlement.Money{0, "EUR"}, "held.minor"},
		{settlement.Money{-1, "EUR"}, "held.minor"},
		{settlement.Money{settlement.MaxMinor + 1, "EUR"}, "held.minor"},
		{settlement.Money{1, ""}, "held.currency"},
		{settlement.Money{1, "eur"}, "held.currency"},
		{settlement.Money{1, "EUR "}, "held.currency"},
		{settlement.Money{1, "EURO"}, "held.currency"},
		{settlement.Money{1, "HRK"}, "held.currency"},
		{settlement.Money{1, "BGN"}, "held.currency"},
		{settlement.Money{1, "ANG"}, "held.currency"},
		{settlement.Money{1, "XAU"}, "held.currency"},
		{settlement.Money{1, "XXX"}, "held.currency"},
		{settlement.Money{1, "XTS"}, "held.currency"},
	} {
		if got := fields(c.m.Validate("held")); !slices.Equal(got, []string{c.field}) {
			t.Errorf("%+v: errors about %q, want %s", c.m, got, c.field)
		}
	}
	if got := fields(settlement.Money{}.Validate("a")); !slices.Equal(got, []string{"a.minor", "a.currency"}) {
		t.Errorf("the zero amount: errors about %q", got)
	}
}

// fields lists what a joined error is about.
func fields(err error) []string {
	var all []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			var f *settlement.FieldError
			if !errors.As(e, &f) || f.Problem == "" {
				return []string{"not a field error: " + e.Error()}
			}
			all = append(all, f.Field)
		}
	}
	return all
}

func TestEveryCurrencyIsListedOnce(t *testing.T) {
	t.Parallel()
	// 178 active codes, less the 13 without a minor unit.
	if len(settlement.Exponents) != 165 {
		t.Errorf("%d currencies", len(settlement.Exponents))
	}
	byDigits := map[int]int{}
	for code, digits := range settlement.Exponents {
		byDigits[digits]++
		if len(code) != 3 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			t.Errorf("%q is no code", code)
		}
	}
	if byDigits[0] != 17 || byDigits[2] != 139 || byDigits[3] != 7 || byDigits[4] != 2 || len(byDigits) != 4 {
		t.Errorf("currencies by number of decimals: %v", byDigits)
	}
}

func TestParseOutcome(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]settlement.Outcome{"release": settlement.Release, "refund": settlement.Refund} {
		if got, err := settlement.ParseOutcome(text); err != nil || got != want {
			t.Errorf("%q gives %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "Release", "refund ", "refunded", "release\x00"} {
		var f *settlement.FieldError
		if got, err := settlement.ParseOutcome(text); got != "" || !errors.As(err, &f) || f.Field != "outcome" {
			t.Errorf("%q gives %q, %v", text, got, err)
		}
	}
}

func FuzzParseOutcome(f *testing.F) {
	for _, seed := range []string{"release", "refund", "", "RELEASE", "refund\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := settlement.ParseOutcome(text)
		if known := text == "release" || text == "refund"; known != (err == nil) || known && string(got) != text || !known && got != "" {
			t.Errorf("%q gives %q, %v", text, got, err)
		}
	})
}

func FuzzMoney(f *testing.F) {
	f.Add(int64(123450), "EUR")
	f.Add(int64(math.MinInt64), "CLF")
	f.Add(int64(-5), "JPY")
	f.Add(int64(0), "\xff")
	f.Fuzz(func(t *testing.T, minor int64, currency string) {
		m := settlement.Money{minor, currency}
		if text := m.String(); !utf8.ValidString(text) {
			t.Errorf("%+v is written %q", m, text)
		}
		_, known := settlement.Exponents[currency]
		if valid := m.Validate("m") == nil; valid != (known && minor >= 1 && minor <= settlement.MaxMinor) {
			t.Errorf("%+v: valid is %v", m, valid)
		}
	})
}

func TestMoneyIsReadAsPeopleWriteIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]settlement.Money{
		"125.00EUR":                 {Minor: 12500, Currency: "EUR"},
		"125.00 EUR":                {Minor: 12500, Currency: "EUR"},
		"0.05 EUR":                  {Minor: 5, Currency: "EUR"},
		"1234.50EUR":                {Minor: 123450, Currency: "EUR"},
		"1,234.50 EUR":              {Minor: 123450, Currency: "EUR"},
		"1,234,567 JPY":             {Minor: 1234567, Currency: "JPY"},
		"17000JPY":                  {Minor: 17000, Currency: "JPY"},
		"1.234KWD":                  {Minor: 1234, Currency: "KWD"},
		"0.0001CLF":                 {Minor: 1, Currency: "CLF"},
		"90,071,992,547,409.91 EUR": {Minor: settlement.MaxMinor, Currency: "EUR"},
	} {
		if got, err := settlement.ParseMoney(text); err != nil || got != want {
			t.Errorf("%q is read as %+v, want %+v; %v", text, got, want, err)
		}
	}
	const form, decimals, size = "such as 125.00EUR", "is not written with the ", "is not between "
	for text, problem := range map[string]string{
		"": form, "EUR": form, "12500": form, "125.00": form, "125.00eur": form, "125.00€": form, "EUR125.00": form, "125.00EUR ": form,
		"125.00XAU": "XAU, which is not an active", "125.00BGN": "BGN, which is not an active", "125.00ABC": "ABC, which is not an active",
		"125EUR": decimals, "125.0EUR": decimals, "125.000EUR": decimals, "125.EUR": decimals, ".50EUR": decimals, "1.00JPY": decimals, "1.00KWD": "3 decimals of KWD, such as 125.000KWD",
		"000125.00EUR": decimals, "00.50EUR": decimals, "125,00EUR": decimals, "17,000EUR": decimals, "1,2345.00EUR": decimals, "1,234567.00EUR": decimals, "12.500,00EUR": decimals,
		"-125.00EUR": decimals, "+125.00EUR": decimals, "1_25.00EUR": decimals, "0x7D.00EUR": decimals, "1e2.00EUR": decimals, "１２５.00EUR": decimals, " 125.00EUR": decimals,
		"125.00  EUR": decimals, "125.00\u00a0EUR": decimals, "125.00\tEUR": decimals, " EUR": decimals, ".EUR": decimals, ",EUR": decimals,
		"0.00EUR": size, "0JPY": size, "90071992547409.92EUR": size, "18446744073709551616.00EUR": "0.01 EUR and 90,071,992,547,409.91 EUR",
	} {
		got, err := settlement.ParseMoney(text)
		var field *settlement.FieldError
		if !errors.As(err, &field) || field.Field != "amount" || !strings.Contains(field.Problem, problem) || got != (settlement.Money{}) {
			t.Errorf("%q: %+v, %v, want %q", text, got, err, problem)
		}
	}
}

// What ParseMoney reads is what String writes, with or without separators and blank; and it reads all that String writes.
func FuzzParseMoney(f *testing.F) {
	for _, text := range []string{"125.00EUR", "1,234.50 EUR", "000125.00EUR", "17000JPY", "0x10.00EUR", "-1.00USD"} {
		f.Add(text, int64(len(text)))
	}
	plain := strings.NewReplacer(",", "", " ", "")
	f.Fuzz(func(t *testing.T, text string, minor int64) {
		if m, err := settlement.ParseMoney(text); err == nil && (m.Validate("amount") != nil || plain.Replace(text) != plain.Replace(m.String())) {
			t.Errorf("%q is read as %s", text, m)
		}
		for _, currency := range []string{"EUR", "JPY", "KWD", "CLF"} {
			m := settlement.Money{Minor: minor, Currency: currency}
			got, err := settlement.ParseMoney(m.String())
			if valid := m.Validate("amount") == nil; valid != (err == nil) || valid && got != m {
				t.Errorf("%s is read as %s, %v", m, got, err)
			}
		}
	})
}
