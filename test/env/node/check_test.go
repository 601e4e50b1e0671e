package node

import (
	"net/netip"
	"strings"
	"testing"
)

func TestMissingCapabilitiesAreNamed(t *testing.T) {
	const all = "Name:\tnode.test\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n"
	if err := checkCapabilities(all); err != nil {
		t.Errorf("with all capabilities: %v", err)
	}
	// Docker's default set lacks CAP_SYS_ADMIN (21) and CAP_NET_ADMIN (12), among others.
	err := checkCapabilities("CapEff:\t00000000a80425fb\n")
	if err == nil {
		t.Fatal("a default container's capabilities are enough")
	}
	for _, want := range []string{"CAP_SYS_ADMIN: namespaces", "CAP_NET_ADMIN: links", "CAP_BPF", "--privileged"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "CAP_KILL") {
		t.Errorf("the error names a capability that is there:\n%v", err)
	}
	// CAP_SYS_RESOURCE (24) alone is not missed.
	if err := checkCapabilities("CapEff:\t000001fffeffffff\n"); err != nil {
		t.Errorf("without CAP_SYS_RESOURCE: %v", err)
	}
}

func TestRangesAreApart(t *testing.T) {
	services, simulated := netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.64.0.0/10")
	for number := range environments {
		for _, other := range []netip.Prefix{services, simulated, addressesOf((number + 1) % environments)} {
			if addressesOf(number).Overlaps(other) {
				t.Errorf("%s overlaps %s", addressesOf(number), other)
			}
		}
	}
}

func TestClaimsAreApart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	first, err := newClaim(nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := newClaim(nil)
	if err != nil {
		t.Fatal(err)
	}
	if first.number == second.number || first.dir == second.dir {
		t.Errorf("two claims have number %d and %d, folders %s and %s", first.number, second.number, first.dir, second.dir)
	}
	// What a killed process leaves is a folder without a lock.
	if err := first.lock.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := newClaim(nil)
	if err != nil {
		t.Fatal(err)
	}
	if third.number != first.number {
		t.Errorf("the abandoned number %d was not reserved anew, but %d", first.number, third.number)
	}
	for _, c := range []*claim{second, third} {
		if err := c.lock.Close(); err != nil {
			t.Error(err)
		}
	}
}
