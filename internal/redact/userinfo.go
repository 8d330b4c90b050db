package redact

import "strings"

// maxUserinfoScan bounds the search for a password with an unescaped slash.
const maxUserinfoScan = 256

// userinfo replaces the user part of a URL whose "://" begins at i. It returns the offset to continue at.
func (sc *scanner) userinfo(i int) int {
	from := i + authorityAt(sc.s[i:])
	if from == i {
		return oracle(sc, i)
	}
	end := from
	for end < len(sc.s) && !endsValue(sc.s[end]) && !strings.ContainsRune("/?#", rune(sc.s[end])) {
		end++
	}
	at := strings.LastIndexByte(sc.s[from:end], '@')
	if at < 0 {
		at = sc.slashedUserinfo(from, end)
	}
	if at <= 0 || sc.s[from:from+at] == RedactedMark {
		return from
	}
	return sc.replace(from, from+at, RedactedMark)
}

// authorityAt returns the length of the "://" at the start of s, 0 if there is none. Some writers of JSON escape its
// slashes.
func authorityAt(s string) int {
	for _, sign := range [...]string{"://", `:\/\/`, `:\\/\\/`} {
		if strings.HasPrefix(s, sign) {
			return len(sign)
		}
	}
	return 0
}

// oracle replaces user/password in an address of Oracle's driver, jdbc:oracle:thin:user/password@host, whose third
// colon is at i. It returns the offset to continue at.
func oracle(sc *scanner, i int) int {
	before := sc.s[max(0, i-len("jdbc:oracle:thin")):i]
	if !strings.HasSuffix(before, "jdbc:oracle:thin") && !strings.HasSuffix(before, "jdbc:oracle:oci") {
		return i + 1
	}
	v := token(sc.s[:min(len(sc.s), i+1+maxUserinfoScan)], i+1)
	at := strings.IndexByte(sc.s[v.from:v.to], '@')
	if at <= 0 || !strings.Contains(sc.s[v.from:v.from+at], "/") {
		return i + 1
	}
	return sc.replace(v.from, v.from+at, RedactedMark)
}

// slashedUserinfo returns the offset of the "@" in user:pass@host if the password has one of "/?#", so that the
// authority s[from:end] ended too early. It returns -1 if a port or nothing follows the colon.
func (sc *scanner) slashedUserinfo(from, end int) int {
	colon := strings.IndexByte(sc.s[from:end], ':')
	if colon < 0 {
		return -1
	}
	port := sc.s[from+colon+1 : end]
	if strings.Trim(port, "0123456789") == "" {
		return -1
	}
	stop := end
	for stop < min(len(sc.s), end+maxUserinfoScan) && !endsValue(sc.s[stop]) {
		stop++
	}
	return strings.LastIndexByte(sc.s[from:stop], '@')
}

// bareUserinfo replaces the user part before the "@" at i of a connection string without a scheme:
// user:password@tcp(host), user:password@host:port or user:password@host/name. Without a protocol, port or path it may
// be the name of a person. It returns the offset to continue at.
func (sc *scanner) bareUserinfo(i int) int {
	s := sc.s
	if !connects(sc.s, i+1) {
		return i + 1
	}
	from := i
	for from > max(sc.done, i-maxUserinfoScan) && !endsValue(s[from-1]) {
		from--
	}
	colon := strings.IndexByte(s[from:i], ':')
	if colon < 1 || from+colon+1 == i || strings.HasPrefix(s[from+colon:], "://") {
		return i + 1
	}
	for at := from; at < from+colon; at++ {
		if !isNameByte(s[at]) {
			return i + 1
		}
	}
	return sc.replace(from, i, RedactedMark)
}

// connects reports whether s has a host with a port, a path or a protocol at i.
func connects(s string, i int) bool {
	for _, protocol := range [...]string{"tcp(", "unix("} {
		if strings.HasPrefix(s[i:], protocol) {
			return true
		}
	}
	end := i
	for end < len(s) && (isAlnum(s[end]) || s[end] == '.' || s[end] == '-') {
		end++
	}
	if end == i || end+1 >= len(s) {
		return false
	}
	return s[end] == ':' && isDigit(s[end+1]) || s[end] == '/' && isAlnum(s[end+1])
}
