package redact

import "strconv"

const (
	minCard = 13
	maxCard = 19
	// maxGap is the maximum number of spaces and dashes between two groups of one number ("4111 - 1111").
	maxGap = 4
)

// group is a run of digits, s[from:to].
type group struct{ from, to int }

func (g group) len() int { return g.to - g.from }

// numbers searches for cards in the word s[i:end], which has a digit, and in the groups after its last one.
// It returns the offset to continue at, which is at least end.
func (sc *scanner) numbers(i, end int) int {
	if isDate(sc.s[i:]) {
		return i + dateLen
	}
	if next, ok := float(sc, i); ok {
		return next
	}
	if next, ok := behindDate(sc, i); ok {
		return next
	}
	if isHexWord(sc.s[i:end]) {
		if next, ok := sc.besideHex(i, end); ok {
			return next
		}
		return end
	}
	if next, ok := sc.printed(i); ok {
		return next
	}
	fraction := isFraction(sc.s, i)
	for i < end {
		if !isDigit(sc.s[i]) {
			i++
			continue
		}
		g := group{from: i, to: digitsEnd(sc.s, i)}
		i = g.to
		if fraction {
			fraction = false
			continue
		}
		if g.to == end {
			return sc.grouped(g)
		}
		sc.groups(append(sc.first[:0], g))
		i = max(i, sc.done)
	}
	return end
}

const dateLen = len("2006-01-02")

// isDate reports whether s begins with a day between 1900 and 2199 in the form 2006-01-02.
func isDate(s string) bool {
	if len(s) < dateLen || s[4] != '-' || s[7] != '-' || (len(s) > dateLen && isDigit(s[dateLen])) {
		return false
	}
	for _, at := range [...]int{0, 1, 2, 3, 5, 6, 8, 9} {
		if !isDigit(s[at]) {
			return false
		}
	}
	century, month, day := s[:2], s[5:7], s[8:10]
	return (century == "19" || century == "20" || century == "21") &&
		"01" <= month && month <= "12" && "01" <= day && day <= "31"
}

// isHexWord reports whether a word could be part of a digest, hexadecimal with a letter in it, or begins with 0x.
func isHexWord(word string) bool {
	if len(word) > 2 && word[0] == '0' && word[1]|0x20 == 'x' {
		return true
	}
	letter := false
	for i := range len(word) {
		if !isHex(word[i]) {
			return false
		}
		letter = letter || !isDigit(word[i])
	}
	return letter
}

func digitsEnd(s string, i int) int {
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return i
}

// grouped collects the groups after first that are joined by spaces or dashes, and searches them for cards. It
// returns the end of the run.
func (sc *scanner) grouped(first group) int {
	run := append(sc.first[:0], first)
	for {
		at := run[len(run)-1].to
		next := at
		for range maxGap {
			next += separator(sc.s[next:])
		}
		if next == at || next == len(sc.s) || !isDigit(sc.s[next]) || isDate(sc.s[next:]) {
			break
		}
		g := group{from: next, to: digitsEnd(sc.s, next)}
		word := g.to
		for word < len(sc.s) && isAlnum(sc.s[word]) {
			word++
		}
		if isHexWord(sc.s[next:word]) || (word-next == 8 && isUUID(sc.s[next:])) {
			break
		}
		run = append(run, g)
		if word > g.to {
			break
		}
	}
	sc.groups(run)
	return run[len(run)-1].to
}

// groups replaces the cards in a run of groups: the whole run in any spacing, or else those parts of it that are
// spaced as cards are printed, so that a card beside another number is found.
func (sc *scanner) groups(run []group) {
	if sc.isCard(run) {
		sc.replace(run[0].from, trackEnd(sc.s, run[len(run)-1].to), CardMark)
		return
	}
	for i := 0; i < len(run); {
		if n := sc.cardAt(run[i:]); n > 0 {
			sc.replace(run[i].from, trackEnd(sc.s, run[i+n-1].to), CardMark)
			i += n
			continue
		}
		i++
	}
}

// cardAt returns how many groups at the start of run make the longest card: its first group has four digits or more,
// those between three or more; or all groups are single digits.
func (sc *scanner) cardAt(run []group) int {
	if single := singles(run); single >= minCard && sc.isCard(run[:single]) {
		return single
	}
	if run[0].len() < 4 {
		return 0
	}
	total, best := 0, 0
	for n, g := range run {
		if total += g.len(); total > maxCard {
			break
		}
		if sc.isCard(run[:n+1]) {
			best = n + 1
		}
		if g.len() < 3 {
			break
		}
	}
	return best
}

// singles counts the leading groups of one digit, up to one more than the digits of a card.
func singles(run []group) int {
	n := 0
	for n < len(run) && n <= maxCard && run[n].len() == 1 {
		n++
	}
	return n
}

func (sc *scanner) isCard(run []group) bool {
	var buf [maxCard]byte
	n := 0
	for _, g := range run {
		if n+g.len() > maxCard {
			return false
		}
		n += copy(buf[n:], sc.s[g.from:g.to])
	}
	if sc.issuedOnly {
		return n >= minCard && isIssuedCard(buf[:n])
	}
	return n >= minCard && luhn(buf[:n])
}

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

// isIssuedCard reports whether the digits pass the Luhn check, and have a prefix and length of a card scheme in
// use. One integer in ten passes Luhn; this keeps timestamps and counters from being refused as cards.
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
