/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of packet it is. Headers may lie outside the linear part of the packet and
 * may be cut short: what is not wholly there is of no kind. */
#ifndef JV_PARSE_H
#define JV_PARSE_H

#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>

#include "headers.h"

#define JV_VLAN_TAGS 2
#define JV_VLAN_LEN 4
#define JV_ARP_LEN 28
#define JV_EXTENSIONS 6
#define JV_ICMP6_LEN 8
#define JV_ND_FIRST 133
#define JV_ND_LAST 137
#define JV_ND_HOPS 255 /* it came through no router */

struct packet {
	__u8 control; /* ARP, DHCP, DHCPv6, neighbour discovery */
	__u8 opens;   /* TCP with SYN: opens a connection */
	__u8 syn;     /* the same, in good order or not */
	__u8 talks;   /* is no ICMP, SYN or RST */
	__u8 has_source;
	__u32 source;  /* address, IPv6 folded */
	__u32 service; /* as in struct config; 0: none */
};

/* Where the transport header is. */
struct transport {
	__u32 at;
	__u32 end; /* of the IP packet */
	__u8 protocol;
	__u8 v6;
	__u8 fragment; /* the first of several */
	__u8 hops;
};

static __always_inline void jv_parse_tcp(struct __sk_buff *skb, const struct transport *t, struct packet *p)
{
	struct tcp tcp;
	__u32 length;

	if (t->at + sizeof(tcp) > t->end || bpf_skb_load_bytes(skb, t->at, &tcp, sizeof(tcp)))
		return;
	p->service = 1U << 31 | bpf_ntohs(tcp.destination);
	p->syn = (tcp.flags & JV_SYN) != 0;
	p->talks = (tcp.flags & (JV_SYN | JV_RST)) == 0;
	length = (tcp.words >> 4) * 4;
	p->opens = (tcp.flags & (JV_SYN | JV_FIN | JV_RST)) == JV_SYN && !t->fragment && length >= sizeof(tcp) &&
		   t->at + length <= t->end;
}

static __always_inline void jv_parse_udp(struct __sk_buff *skb, const struct transport *t, struct packet *p)
{
	struct udp udp;
	__u16 to;

	if (t->at + sizeof(udp) > t->end || bpf_skb_load_bytes(skb, t->at, &udp, sizeof(udp)))
		return;
	to = bpf_ntohs(udp.destination);
	p->service = 1U << 31 | 1U << 16 | to;
	if (!t->fragment)
		p->control = t->v6 ? to == 546 || to == 547 : to == 67 || to == 68;
}

static __always_inline void jv_parse_icmp6(struct __sk_buff *skb, const struct transport *t, struct packet *p)
{
	__u8 type;

	if (t->at + JV_ICMP6_LEN > t->end || bpf_skb_load_bytes(skb, t->at, &type, sizeof(type)))
		return;
	p->control = type >= JV_ND_FIRST && type <= JV_ND_LAST && t->hops == JV_ND_HOPS && !t->fragment;
}

static __always_inline void jv_parse_transport(struct __sk_buff *skb, const struct transport *t, struct packet *p)
{
	p->talks = t->protocol != JV_ICMP && t->protocol != JV_ICMPV6;
	if (t->protocol == JV_TCP)
		jv_parse_tcp(skb, t, p);
	else if (t->protocol == JV_UDP)
		jv_parse_udp(skb, t, p);
	else if (t->protocol == JV_ICMPV6 && t->v6)
		jv_parse_icmp6(skb, t, p);
}

/* Where what begins at a place ends, which says to have a length. Packets too big to say
 * so have 0 there: theirs is not looked into, for it is much data. */
static __always_inline __u32 jv_end(struct __sk_buff *skb, __u32 at, __u32 length)
{
	__u32 whole = skb->len;

	return at + length < whole ? at + length : whole;
}

static __always_inline void jv_parse_ipv4(struct __sk_buff *skb, __u32 at, struct packet *p)
{
	struct transport t = {};
	struct ipv4 ip;
	__u16 offset;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version_words < 0x45 || ip.version_words > 0x4f)
		return;
	p->source = ip.source;
	p->has_source = 1;
	offset = bpf_ntohs(ip.offset);
	if (offset & JV_FRAGMENT_OFFSET)
		return; /* ports are in the first fragment */
	t.fragment = (offset & JV_MORE_FRAGMENTS) != 0;
	t.at = at + (ip.version_words & 0xf) * 4;
	t.end = jv_end(skb, at, bpf_ntohs(ip.length));
	t.protocol = ip.protocol;
	jv_parse_transport(skb, &t, p);
}

/* Goes past one extension header. Returns false when the transport header is not beyond. */
static __always_inline int jv_skip_extension(struct __sk_buff *skb, struct transport *t)
{
	struct extension e;

	if (bpf_skb_load_bytes(skb, t->at, &e, sizeof(e)))
		return 0;
	if (t->protocol == JV_FRAGMENT) {
		if (bpf_ntohs(e.offset) & ~7)
			return 0;
		t->fragment |= bpf_ntohs(e.offset) & 1;
		t->at += 8;
	} else if (t->protocol == JV_AH) {
		t->at += (e.length + 2) * 4;
	} else {
		t->at += (e.length + 1) * 8;
	}
	t->protocol = e.next;
	return 1;
}

static __always_inline int jv_is_extension(__u8 protocol)
{
	return protocol == JV_HOPOPTS || protocol == JV_ROUTING || protocol == JV_DSTOPTS ||
	       protocol == JV_FRAGMENT || protocol == JV_AH;
}

static __always_inline void jv_parse_ipv6(struct __sk_buff *skb, __u32 at, struct packet *p)
{
	struct transport t = { .v6 = 1 };
	struct ipv6 ip;
	int i;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version >> 4 != 6)
		return;
	p->source = ip.source[0] ^ (ip.source[1] * 3) ^ (ip.source[2] * 5) ^ (ip.source[3] * 7);
	p->has_source = 1;
	t.at = at + sizeof(ip);
	t.end = jv_end(skb, t.at, bpf_ntohs(ip.length));
	t.protocol = ip.next;
	t.hops = ip.hops;
	for (i = 0; i < JV_EXTENSIONS && jv_is_extension(t.protocol); i++)
		if (!jv_skip_extension(skb, &t))
			return;
	jv_parse_transport(skb, &t, p);
}

/* Says what kind of packet it is. A tag that the card takes off or puts on is not in the
 * data: such a packet looks untagged. */
JV_FUNCTION int jv_parse(struct __sk_buff *skb, struct packet *p)
{
	__u32 at = ETH_HLEN;
	__be16 type;
	int i;

	if (!p || bpf_skb_load_bytes(skb, at - sizeof(type), &type, sizeof(type)))
		return 0;
	for (i = 0; i < JV_VLAN_TAGS; i++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		at += JV_VLAN_LEN;
		if (bpf_skb_load_bytes(skb, at - sizeof(type), &type, sizeof(type)))
			return 0;
	}
	if (type == bpf_htons(ETH_P_IP))
		jv_parse_ipv4(skb, at, p);
	else if (type == bpf_htons(ETH_P_IPV6))
		jv_parse_ipv6(skb, at, p);
	else if (type == bpf_htons(ETH_P_ARP))
		p->control = at + JV_ARP_LEN <= skb->len;
	return 0;
}

#endif
