/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of packets. Those of the system have bit fields in the order of the machine that
 * compiles, not of the one that runs the program. */
#ifndef JV_HEADERS_H
#define JV_HEADERS_H

#include <linux/types.h>

/* Protocols, of which IPv6 has extension headers first. */
#define JV_HOPOPTS 0
#define JV_ICMP 1
#define JV_TCP 6
#define JV_UDP 17
#define JV_ROUTING 43
#define JV_FRAGMENT 44
#define JV_AH 51
#define JV_ICMPV6 58
#define JV_DSTOPTS 60

struct ipv4 {
	__u8 version_words; /* of 4 bytes, header and options */
	__u8 tos;
	__be16 length;
	__be16 id;
	__be16 offset;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
};

#define JV_FRAGMENT_OFFSET 0x1fff
#define JV_MORE_FRAGMENTS 0x2000

struct ipv6 {
	__u8 version;
	__u8 flow[3];
	__be16 length; /* beyond this header */
	__u8 next;
	__u8 hops;
	__be32 source[4];
	__be32 destination[4];
};

struct extension {
	__u8 next;
	__u8 length;
	__be16 offset; /* of fragments, in units of 8 bytes; the last bit: more follow */
};

struct tcp {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledged;
	__u8 words; /* of 4 bytes, header and options, times 16 */
	__u8 flags;
	__be16 window;
	__u16 checksum;
	__be16 urgent;
};

#define JV_FIN 0x01
#define JV_SYN 0x02
#define JV_RST 0x04

struct udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__u16 checksum;
};

#endif
