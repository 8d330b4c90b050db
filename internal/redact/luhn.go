package redact

import "strconv"

// luhn reports whether the digits pass the check of ISO/IEC 7812-1, annex B.
func luhn(digits []byte) bool {
	sum := 0
	for i, c := range digits {
		d := int(c - '0')
		if (len(digits)-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// isIssuedCard reports whether the digits pass the Luhn check and begin as the cards of a scheme in use do, with one of
// its lengths. One integer in ten passes Luhn; this keeps timestamps and counters from being refused as cards.
func isIssuedCard(digits []byte) bool {
	if !luhn(digits) {
		return false
	}
	first, err := strconv.Atoi(string(digits[:4]))
	if err != nil {
		return false
	}
	n := len(digits)
	switch {
	case first/1000 == 4: // Visa
		return n == 13 || n == 16 || n == 19
	case first/100 == 34, first/100 == 37: // American Express
		return n == 15
	case 2221 <= first && first <= 2720, 51 <= first/100 && first/100 <= 55: // Mastercard
		return n == 16
	case 2200 <= first && first <= 2204: // Mir
		return n >= 16
	case 3000 <= first && first <= 3059, first == 3095, first/100 == 36, first/100 == 38, first/100 == 39: // Diners
		return n >= 14
	case 3528 <= first && first <= 3589: // JCB
		return n >= 16
	}
	return first/100 == 50 || 56 <= first/100 && first/100 <= 69 // Maestro, Discover, UnionPay
}
