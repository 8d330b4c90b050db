package redact

// ibanLength is the length of an IBAN by country: the countries of the SWIFT registry, and those that use the format
// without being in it.
var ibanLength = map[[2]byte]int{}

func init() {
	const lengths = "AD24 AE23 AL28 AO25 AT20 AZ28 BA20 BE16 BF28 BG22 BH22 BI27 BJ28 BR29 BY28 CF27 CG27 CH21 CI28 CM27 " +
		"CR22 CV25 CY28 CZ24 DE22 DJ27 DK18 DO28 DZ26 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GA27 GB22 GE22 GI23 GL18 " +
		"GQ27 GR27 GT28 GW25 HN28 HR21 HU28 IE22 IL23 IQ23 IR26 IS26 IT27 JO30 KM27 KW30 KZ20 LB28 LC32 LI21 LT20 " +
		"LU20 LV21 LY25 MA28 MC27 MD24 ME22 MG27 MK19 ML28 MN20 MR27 MT31 MU30 MZ25 NE28 NI28 NL18 NO15 OM23 PK24 " +
		"PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SN28 SO23 ST25 SV28 TD27 TG28 TL23 " +
		"TN24 TR26 UA29 VA22 VG24 XK20 YE30"
	for i := 0; i < len(lengths); i += 5 {
		ibanLength[[2]byte{lengths[i], lengths[i+1]}] = int(lengths[i+2]-'0')*10 + int(lengths[i+3]-'0')
	}
}

// minIBANDigits is the minimum number of digits of an account number in groups: words are no account number.
const minIBANDigits = 6

// iban replaces an IBAN that begins with the word s[i:end]. It is one word, or groups joined by spaces
// and dashes, or groups all joined by the same signs.
func (sc *scanner) iban(i, end int) (int, bool) {
	s := sc.s
	if end-i < 4 || !isLetter(s[i]) || !isLetter(s[i+1]) || !isDigit(s[i+2]) || !isDigit(s[i+3]) {
		return 0, false
	}
	want := ibanLength[[2]byte{s[i] &^ 0x20, s[i+1] &^ 0x20}]
	if want == 0 || end-i > want {
		return 0, false
	}
	var buf [34]byte
	n, at, digits, sign := 0, i, 0, ""
	for n < want && at < len(s) {
		if isAlnum(s[at]) {
			buf[n] = s[at]
			n++
			if isDigit(s[at]) {
				digits++
			}
			at++
			continue
		}
		gap := separator(s[at:])
		if gap == 0 || at+gap == len(s) || !isAlnum(s[at+gap]) {
			if gap = gapLen(s[at:]); gap == 0 || sign != "" && s[at:at+gap] != sign {
				return 0, false
			}
			sign = s[at : at+gap]
		}
		at += gap
	}
	if at-i > want && digits < minIBANDigits {
		return 0, false
	}
	if n < want || (at < len(s) && isAlnum(s[at])) || !mod97(buf[:n]) {
		return 0, false
	}
	return sc.replace(i, at, IBANMark), true
}

// mod97 reports whether letters and digits pass the check of ISO 13616: with the first four moved to the end and
// letters read as 10 to 35, the number modulo 97 is 1.
func mod97(account []byte) bool {
	rest := 0
	for i := range account {
		c := account[(i+4)%len(account)]
		if isDigit(c) {
			rest = (rest*10 + int(c-'0')) % 97
			continue
		}
		rest = (rest*100 + int(c|0x20-'a') + 10) % 97
	}
	return rest == 1
}
