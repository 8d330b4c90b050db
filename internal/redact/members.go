package redact

import "strings"

const (
	// maxTag is the maximum length of a tag between "<" and ">".
	maxTag = 128
	// maxMemberGap is the maximum number of blanks and line ends between two members.
	maxMemberGap = 8
	// maxFormHead is how far before the name of a form's field its kind stands.
	maxFormHead = 64
	cdataBegin  = "<![CDATA["
	cdataEnd    = "]]>"
)

// member replaces the value that belongs to the secret name in quotes that ends at end: the member "value" beside it
// (HAR, forms), the other of two items of a list, or the body of a field of a multipart form.
func member(sc *scanner, end int) (int, bool) {
	s, at := sc.s, end
	for at < len(s) && s[at] == '\\' {
		at++
	}
	if at == len(s) || !isQuote(s[at]) {
		return 0, false
	}
	quote := s[at]
	at++
	if at == len(s) || s[at] != ',' && s[at] != ' ' && s[at] != '\r' && s[at] != '\n' || !nameBefore(s, end).secret() {
		return 0, false
	}
	comma := s[at] == ','
	if comma {
		at++
	}
	at = gap(s, at)
	if next, ok := valueMember(sc, at); ok {
		return next, true
	}
	if comma {
		return secondItem(sc, end, at)
	}
	if head := s[max(0, end-maxFormHead):end]; quote != '"' || !strings.Contains(head, "form-data") {
		return 0, false
	}
	if v := token(s, at); v.to > v.from {
		return sc.hide(v), true
	}
	return 0, false
}

// valueMember replaces the value of the member "value" that begins at i.
func valueMember(sc *scanner, i int) (int, bool) {
	s := sc.s
	for i < len(s) && (s[i] == '\\' || isQuote(s[i])) {
		i++
	}
	end := i + len("value")
	if end > len(s) || !strings.EqualFold(s[i:end], "value") {
		return 0, false
	}
	at, sign := sc.readSign(end)
	if sign == 0 {
		return 0, false
	}
	return sc.hide(sc.value(at)), true
}

// secondItem replaces the item at i of a list whose first item is the name that ends at end, if there are two and the
// second has a digit: a list of names has none.
func secondItem(sc *scanner, end, i int) (int, bool) {
	s, first := sc.s, end
	for first > max(0, end-maxFlagName) && isNameByte(s[first-1]) {
		first--
	}
	for first > 0 && (isQuote(s[first-1]) || s[first-1] == '\\') {
		first--
	}
	if first == 0 || s[first-1] != '[' {
		return 0, false
	}
	for i < len(s) && s[i] == '\\' {
		i++
	}
	v := quoted(sc, i)
	closing := v.to
	for closing < len(s) && (isQuote(s[closing]) || s[closing] == '\\') {
		closing++
	}
	if v.from == i || closing == len(s) || s[closing] != ']' || !hasDigit(s[v.from:v.to]) {
		return 0, false
	}
	return sc.hide(v), true
}

// gap skips blanks and line ends.
func gap(s string, i int) int {
	for range maxMemberGap {
		if i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == '\r' || s[i] == '\n') {
			i++
		}
	}
	return i
}

// startTagEnd returns the offset behind the start tag whose element's name ends at i; 0 if there is none, or if the
// element is empty.
func startTagEnd(s string, i int) int {
	if i == len(s) || s[i] != '>' && s[i] != ' ' && s[i] != '\n' {
		return 0
	}
	from := i
	for from > 0 && (isNameByte(s[from-1]) || s[from-1] == ':') {
		from--
	}
	if from == 0 || s[from-1] != '<' {
		return 0
	}
	length := strings.IndexAny(s[i:min(len(s), i+maxTag)], "<>")
	if length < 0 || s[i+length] == '<' || length > 0 && s[i+length-1] == '/' {
		return 0
	}
	return i + length + 1
}

// cdata returns the extent of the character data that begins at i.
func cdata(s string, i int) span {
	if length := strings.Index(s[i:], cdataEnd); length >= 0 {
		return span{i, i + length}
	}
	return span{i, len(s)}
}

// indexEnd returns the offset behind the bracket at i that closes an index by name, as in user[password]=x; 0 if it
// closes none. A blank before the sign is that of a programming language.
func indexEnd(s string, i int) int {
	if i+1 >= len(s) || s[i] != ']' || s[i+1] != '=' || !nameBefore(s, i).secret() && !isQuote(s[i-1]) {
		return 0
	}
	from := i
	for from > max(0, i-maxFlagName) && (isNameByte(s[from-1]) || isQuote(s[from-1])) {
		from--
	}
	if from < 2 || s[from-1] != '[' || !isAlnum(s[from-2]) && s[from-2] != ']' {
		return 0
	}
	return i + 1
}

// untagged returns s with one sign in place of the tags between two digits, and whether that differs from s.
func untagged(s string) (readableText, bool) {
	if !strings.Contains(s, "<") {
		return readableText{}, false
	}
	v := readableText{text: make([]byte, 0, len(s)), at: make([]int, 0, len(s)+1)}
	differs := false
	for i := 0; i < len(s); {
		v.at = append(v.at, i)
		if end := tagsEnd(s, i); end > 0 {
			v.text = append(v.text, '|')
			i, differs = end, true
			continue
		}
		v.text = append(v.text, s[i])
		i++
	}
	v.at = append(v.at, len(s))
	return v, differs
}

// tagsEnd returns the end of the tags that begin at i, between two digits; 0 if there are none.
func tagsEnd(s string, i int) int {
	if i == 0 || s[i] != '<' || !isDigit(s[i-1]) {
		return 0
	}
	for i < len(s) && s[i] == '<' {
		if i+1 == len(s) || !isLetter(s[i+1]) && s[i+1] != '/' {
			return 0
		}
		length := strings.IndexAny(s[i+1:min(len(s), i+maxTag)], "<>")
		if length < 0 || s[i+1+length] == '<' {
			return 0
		}
		i = gap(s, i+1+length+1)
	}
	if i == len(s) || !isDigit(s[i]) {
		return 0
	}
	return i
}

// tagBefore returns where the tag begins that ends at end; -1 if there is none.
func tagBefore(s string, end int) int {
	if s[end-1] != '>' {
		return -1
	}
	from := max(0, end-maxTag)
	at := strings.LastIndexAny(s[from:end-1], "<>")
	if at < 0 || s[from+at] != '<' {
		return -1
	}
	return from + at
}
