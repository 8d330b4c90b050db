package webhookdelivery

import (
	"net/netip"
	"testing"
)

func TestAddressesThatAreNotPublicAreRefused(t *testing.T) {
	t.Parallel()
	for addr, open := range map[string]bool{
		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "10.255.255.255": false, "100.64.0.1": false, "100.127.255.255": false, "127.0.0.1": false, "127.255.0.1": false,
		"169.254.169.254": false, "172.16.0.1": false, "172.31.255.255": false, "192.0.0.8": false, "192.168.1.1": false, "198.18.0.1": false, "198.19.255.255": false,
		"224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false, "192.0.2.1": false, "198.51.100.7": false, "203.0.113.9": false,
		"::": false, "::1": false, "fc00::1": false, "fdff::1": false, "fe80::1": false, "fe80::1%eth0": false, "ff02::1": false, "fec0::1": false, "2001:db8::1": false, "2002:7f00:1::": false, "2001::1": false, "100::1": false,
		"::ffff:10.0.0.1": false, "::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "64:ff9b::10.0.0.1": false, "64:ff9b::7f00:1": false, "64:ff9b:1::1": false, "::7f00:1": false,
		"2606:4700:4700::1111%eth0": false,

		"1.1.1.1": true, "9.255.255.255": true, "11.0.0.0": true, "100.63.255.255": true, "100.128.0.0": true, "172.15.255.255": true, "172.32.0.0": true, "192.0.1.0": true, "192.167.255.255": true, "192.169.0.0": true,
		"198.17.255.255": true, "198.20.0.0": true, "223.255.255.255": true, "2606:4700:4700::1111": true, "::ffff:1.1.1.1": true, "64:ff9b::1.1.1.1": true,
	} {
		if err := CheckAddress(netip.MustParseAddr(addr), nil, false); (err == nil) != open {
			t.Errorf("%s: %v", addr, err)
		}
		if err := CheckAddress(netip.MustParseAddr(addr), nil, true); err == nil {
			t.Errorf("%s is open without TLS", addr)
		}
	}
}

func TestTheOperatorOpensNetworks(t *testing.T) {
	t.Parallel()
	allow := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32"), netip.MustParsePrefix("1.1.1.0/24")}
	for addr, open := range map[string]struct{ tls, plain bool }{
		"10.1.2.3": {true, true}, "10.2.0.1": {false, false}, "::ffff:10.1.2.3": {true, true}, "64:ff9b::10.1.2.3": {true, true}, "fd00:1::9": {true, true}, "fd00:2::9": {false, false},
		"1.1.1.1": {true, true}, "8.8.8.8": {true, false},
	} {
		if err := CheckAddress(netip.MustParseAddr(addr), allow, false); (err == nil) != open.tls {
			t.Errorf("%s: %v", addr, err)
		}
		if err := CheckAddress(netip.MustParseAddr(addr), allow, true); (err == nil) != open.plain {
			t.Errorf("%s without TLS: %v", addr, err)
		}
	}
}
