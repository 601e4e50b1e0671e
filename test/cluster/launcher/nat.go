package launcher

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// translateAddresses installs KubeVirt's masquerade rules in this network
// namespace:
//
//	prerouting:           iifname eth0 jump KUBEVIRT_PREINBOUND
//	output:               ip daddr 127.0.0.1 dnat to <guest>
//	postrouting:          ip saddr <guest> masquerade
//	                      oifname k6t-eth0 jump KUBEVIRT_POSTINBOUND
//	KUBEVIRT_PREINBOUND:  dnat to <guest>
//	KUBEVIRT_POSTINBOUND: ip saddr 127.0.0.1 snat to <gateway>
func translateAddresses() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("connect to nftables: %w", err)
	}
	guest, gateway := netip.MustParseAddr(guestAddress), netip.MustParseAddr(guestGateway)
	loopback := netip.MustParseAddr("127.0.0.1")

	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nat"})
	base := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority})
	}
	prerouting := base("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	base("input", nftables.ChainHookInput, nftables.ChainPriorityNATSource)
	output := base("output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	postrouting := base("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	preInbound := conn.AddChain(&nftables.Chain{Name: "KUBEVIRT_PREINBOUND", Table: table})
	postInbound := conn.AddChain(&nftables.Chain{Name: "KUBEVIRT_POSTINBOUND", Table: table})

	rule := func(chain *nftables.Chain, parts ...[]expr.Any) {
		var exprs []expr.Any
		for _, part := range parts {
			exprs = append(exprs, part...)
		}
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
	}
	rule(prerouting, interfaceIs(expr.MetaKeyIIFNAME, podInterface), counted(), jump(preInbound))
	rule(output, addressIs(destinationOffset, loopback), counted(), nat(expr.NATTypeDestNAT, guest))
	rule(postrouting, addressIs(sourceOffset, guest), counted(), []expr.Any{&expr.Masq{}})
	rule(postrouting, interfaceIs(expr.MetaKeyOIFNAME, podBridge), counted(), jump(postInbound))
	rule(preInbound, counted(), nat(expr.NATTypeDestNAT, guest))
	rule(postInbound, addressIs(sourceOffset, loopback), counted(), nat(expr.NATTypeSourceNAT, gateway))
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("install the pod's address translation: %w", err)
	}
	return nil
}

// Offsets of the addresses in the IPv4 header.
const (
	sourceOffset      = 12
	destinationOffset = 16
)

// register is the nftables register that carries a value between expressions.
const register = 1

func interfaceIs(key expr.MetaKey, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{
		&expr.Meta{Key: key, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: padded},
	}
}

func addressIs(offset uint32, address netip.Addr) []expr.Any {
	const addressLength = 4
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: addressLength},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: address.AsSlice()},
	}
}

func counted() []expr.Any { return []expr.Any{&expr.Counter{}} }

func jump(chain *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain.Name}}
}

func nat(kind expr.NATType, to netip.Addr) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: register, Data: to.AsSlice()},
		&expr.NAT{Type: kind, Family: unix.NFPROTO_IPV4, RegAddrMin: register},
	}
}
