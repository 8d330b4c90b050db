package settlement

import "strings"

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
