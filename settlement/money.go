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

// ParseMoney reads an amount as people write it, in major units with its currency: "125.00EUR" or "125.00 EUR". It has all
// decimals of the currency and no sign or leading zeros. It may have the separators that String writes, all of them:
// "1,234.50 EUR". The error is a *FieldError about "amount" that has the accepted form. The amount is one that Validate
// accepts.
func ParseMoney(text string) (Money, error) {
	wrong := func(problem string) (Money, error) { return Money{}, &FieldError{Field: "amount", Problem: problem} }
	at := len(text) - 3
	if at < 1 || strings.Trim(text[at:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return wrong("is not a sum of money with its currency, such as 125.00EUR")
	}
	number, currency := strings.TrimSuffix(text[:at], " "), text[at:]
	decimals, ok := exponent(currency)
	if !ok {
		return wrong("is in " + currency + ", which is not an active ISO 4217 currency")
	}
	digits := strings.NewReplacer(",", "", ".", "").Replace(number)
	minor, err := strconv.ParseUint(digits, 10, 64)
	if err == nil && (minor == 0 || minor > MaxMinor) || errors.Is(err, strconv.ErrRange) {
		return wrong("is not between " + Money{1, currency}.String() + " and " + Money{MaxMinor, currency}.String())
	}
	read := Money{int64(minor), currency}
	written := strings.TrimSuffix(read.String(), " "+currency)
	if err != nil || number != written && number != strings.ReplaceAll(written, ",", "") {
		example := "125"
		if decimals > 0 {
			example += "." + strings.Repeat("0", decimals)
		}
		return wrong(fmt.Sprintf("is not written with the %d decimals of %s, such as %s%s", decimals, currency, example, currency))
	}
	return read, nil
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
