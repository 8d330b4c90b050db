package redact

// maxPrintedGap is the maximum number of characters, neither letters nor digits, between two groups of one number.
const maxPrintedGap = 8

// printedGroupings lists the group lengths in which cards are printed. A card may also be written digit by digit.
var printedGroupings = [...][]int{{4, 4, 4, 4}, {4, 4, 4, 4, 3}, {4, 4, 4, 4, 2}, {4, 4, 4, 4, 1}, {4, 6, 5}, {4, 6, 4}, {4, 4, 4, 1}}

// gapLen returns the length of the gap at the start of s before the next group; 0 if there is none.
func gapLen(s string) int {
	for n := range min(len(s), maxPrintedGap+1) {
		if isAlnum(s[n]) {
			return n
		}
	}
	return 0
}

// printed replaces a card whose first group begins at i and whose groups are all joined by the same signs, of any
// kind. A run of more groups, such as an IPv6 address or a list, is no card.
func (sc *scanner) printed(i int) (int, bool) {
	s := sc.s
	var lens [maxCard]int
	var digits [maxCard]byte
	count, n, gap, at := 0, 0, "", i
	if gl := gapLen(s[digitsEnd(sc.s, i):]); gl > 0 {
		gap = s[digitsEnd(sc.s, i) : digitsEnd(sc.s, i)+gl]
	}
	if gap == "" || (i > len(gap) && s[i-len(gap):i] == gap && isDigit(s[i-len(gap)-1])) {
		return 0, false
	}
	for {
		end := digitsEnd(sc.s, at)
		if end == at || n+end-at > maxCard || (end < len(s) && isAlnum(s[end])) {
			return 0, false
		}
		lens[count] = end - at
		count++
		n += copy(digits[n:], s[at:end])
		at = end
		if len(s)-end <= len(gap) || s[end:end+len(gap)] != gap || !isAlnum(s[end+len(gap)]) {
			break
		}
		at = end + len(gap)
	}
	if n < minCard || !isPrintedGrouping(lens[:count]) || !isIssuedCard(digits[:n]) {
		return 0, false
	}
	return sc.replace(i, trackEnd(sc.s, at), CardMark), true
}

func isPrintedGrouping(lens []int) bool {
	if len(lens) >= minCard {
		return true // single digits: no more of them than in a card
	}
	for _, known := range printedGroupings {
		if len(lens) != len(known) {
			continue
		}
		same := true
		for i, n := range known {
			same = same && lens[i] == n
		}
		if same {
			return true
		}
	}
	return false
}

// besideHex replaces a card in a hexadecimal word s[i:end] that is a card with at most one letter on each side, or
// the second track of a card. A digest has another form; 64 bits are 16 characters.
func (sc *scanner) besideHex(i, end int) (int, bool) {
	from := i
	if !isDigit(sc.s[from]) {
		from++
	}
	to := digitsEnd(sc.s, from)
	if n := to - from; n < minCard || n > maxCard || !isIssuedCard([]byte(sc.s[from:to])) {
		return 0, false
	}
	if track := trackEnd(sc.s, to); track >= end && track > to {
		return sc.replace(from, track, CardMark), true
	}
	if end-i == 16 || end-to > 1 {
		return 0, false
	}
	return sc.replace(from, to, CardMark), true
}

const (
	minTrack     = 4  // a card's expiry
	maxTrackName = 32 // of the holder, with the signs around it
)

// trackEnd returns the end of the magnetic stripe's fields after the number that ends at to: "=" or "D" and digits on
// the second track, the holder between "^" and digits on the first. It returns to if there are none.
func trackEnd(s string, to int) int {
	if to == len(s) {
		return to
	}
	at := to + 1
	switch s[to] {
	case '=', 'D', 'd':
	case '^':
		for at < min(len(s), to+maxTrackName) && s[at] != '^' && s[at] != '\n' {
			at++
		}
		if at == len(s) || s[at] != '^' {
			return to
		}
		at++
	default:
		return to
	}
	end := digitsEnd(s, at)
	if end-at < minTrack {
		return to
	}
	if end < len(s) && s[end] == '?' {
		end++
	}
	return end
}

// maxFractionDigits is the maximum number of significant digits of a printed floating-point number.
const maxFractionDigits = 17

// isFraction reports whether the digits at i are the fraction of a printed floating-point number.
func isFraction(s string, i int) bool {
	if i < 2 || s[i-1] != '.' || !isDigit(s[i-2]) {
		return false
	}
	from := i - 1
	for from > 0 && isDigit(s[from-1]) {
		from--
	}
	for from < i-1 && s[from] == '0' {
		from++
	}
	return (i-1-from)+(digitsEnd(s, i)-i) <= maxFractionDigits
}
