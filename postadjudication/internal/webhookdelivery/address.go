package webhookdelivery

import (
	"fmt"
	"net/netip"
)

// closedPrefixes are the networks that no request goes to unless the operator opens them: those of
// the machine itself, of private and shared networks, and those that reach many machines or none.
var closedPrefixes = parsePrefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// Addresses of version 6 that are not global unicast are closed, too. nat64 has the address of
// version 4 that it stands for in its last four bytes.
var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
)

func parsePrefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// addressError means that no request goes to an address.
type addressError struct {
	addr netip.Addr
	open bool // only over https
}

func (e *addressError) Error() string {
	if e.open {
		return fmt.Sprintf("http to %s is refused: it is for addresses that serve --webhooks-allow opens", e.addr)
	}
	return fmt.Sprintf("requests to %s are refused: the address is private, local or reserved, and serve --webhooks-allow does not open it", e.addr)
}

// CheckAddress returns nil if a request may go to an address. Without TLS it may go only where the
// operator has opened the address.
func CheckAddress(addr netip.Addr, allow []netip.Prefix, plain bool) error {
	within := addr.WithZone("").Unmap()
	if nat64.Contains(within) {
		bytes := within.As16()
		within = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	for _, p := range allow {
		if p.Contains(within) {
			return nil
		}
	}
	switch {
	case addr.Zone() != "" || within.Is6() && !globalUnicast.Contains(within):
		return &addressError{addr: addr}
	case plain:
		return &addressError{addr: addr, open: true}
	}
	for _, p := range closedPrefixes {
		if p.Contains(within) {
			return &addressError{addr: addr}
		}
	}
	return nil
}
