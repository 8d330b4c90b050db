package settlement

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxMinor is the largest amount: the largest integer that every JSON reader keeps
// exact.
const MaxMinor = 1<<53 - 1

// Money is an amount in minor units of an ISO 4217 currency.
type Money struct {
	Minor    int64  `json:"minor"`
	Currency string `json:"currency"`
}

// Validate returns what is wrong with an amount that is to be moved: a join of
// *FieldError about "<field>.minor" and "<field>.currency". An amount is positive
// and at most MaxMinor; a currency is an active code of ISO 4217, in capitals, that
// has a minor unit.
func (m Money) Validate(field string) error { return errors.Join(m.problems(field)...) }

func (m Money) problems(field string) []error {
	var all []error
	if m.Minor <= 0 || m.Minor > MaxMinor {
		all = append(all, &FieldError{Field: field + ".minor", Problem: fmt.Sprintf("is not between 1 and %d", int64(MaxMinor))})
	}
	if _, ok := exponent(m.Currency); !ok {
		all = append(all, &FieldError{Field: field + ".currency", Problem: "is not an active ISO 4217 currency"})
	}
	return all
}

// String writes the amount for people, in major units: "1,234.50 EUR". An amount
// in an unknown currency is written in minor units and says so.
func (m Money) String() string { return inMajorUnits(strconv.FormatInt(m.Minor, 10), m.Currency) }

// inMajorUnits writes minor units, which are decimal digits with or without a minus sign, in major units.
func inMajorUnits(minor, currency string) string {
	digits, ok := exponent(currency)
	if !ok {
		return fmt.Sprintf("%s minor units of %q", minor, currency)
	}
	var out strings.Builder
	text, negative := strings.CutPrefix(minor, "-")
	if negative {
		out.WriteByte('-')
	}
	if short := digits + 1 - len(text); short > 0 {
		text = strings.Repeat("0", short) + text
	}
	whole, part := text[:len(text)-digits], text[len(text)-digits:]
	for i, digit := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(digit)
	}
	if digits > 0 {
		out.WriteString("." + part)
	}
	return out.String() + " " + currency
}

// exponent gives the number of decimals of a currency's minor unit. It knows the
// active codes of ISO 4217, amendment 180 included (in force since 1 January 2026).
// Metals, bond units, drawing rights and the codes for tests and for no currency
// are not among them: they have no minor unit, so an amount in minor units would
// mean nothing.
func exponent(currency string) (digits int, ok bool) {
	digits, ok = exponents[currency]
	return digits, ok
}

var exponents = byCode(map[int]string{
	0: `BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF`,
	2: `AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF
		CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL
		HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU
		MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR
		SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED
		VES WST XAD XCD XCG YER ZAR ZMW ZWG`,
	3: `BHD IQD JOD KWD LYD OMR TND`,
	4: `CLF UYW`,
})

func byCode(lists map[int]string) map[string]int {
	out := map[string]int{}
	for digits, list := range lists {
		for code := range strings.FieldsSeq(list) {
			out[code] = digits
		}
	}
	return out
}
