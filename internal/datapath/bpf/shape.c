//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes what leaves through a device: turns and a ceiling. Each packet is stamped with the
 * time at which it may leave (earliest departure time), and fq lets it go then. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "common.h"
#include "headers.h"

/* Packets below this size do not wait for a turn: acknowledgements, keep-alives, probes and
 * handshakes. Those with data keep the order of their flow. */
#define JV_SMALL 256
/* A flow whose last packet left longer ago has nothing left in fq. */
#define JV_DRAINED JV_SECOND
/* A local TCP paces by stamps of its own, which lie at most this far ahead. */
#define JV_OWN_STAMP JV_SECOND
/* fq sends packets of priority TC_PRIO_CONTROL before all others, whatever their flow waits for. */
#define JV_FIRST_IN_LINE 7
#define JV_BITS 8

/* How packets are shaped. Times are ns, rates bit/s. */
struct shaping {
	__u64 period; /* of turns; 0: there are none */
	__u64 offset;
	__u64 length;
	__u64 trickle;	    /* rate between turns */
	__u64 trickle_most; /* longest wait for the trickle: what would wait longer is dropped */
	__u64 ceiling;	    /* 0: none */
	__u64 ceiling_most; /* longest wait for the ceiling */
};

struct shaped {
	struct bpf_spin_lock lock;
	__u32 unused;
	__u64 trickle_until; /* the trickle is used up until then */
	__u64 turn;	     /* the turn before which that is so */
	__u64 ceiling_until; /* the ceiling is used up until then */
	__u64 small_until;   /* the same for small packets between turns */
};

JV_ONE(jv_shaping, struct shaping);
JV_ONE(jv_shaped, struct shaped);

/* Whether a packet is of TCP with data, or of UDP. */
static __always_inline int jv_has_data(struct __sk_buff *skb)
{
	__u32 at, length;
	__u8 protocol, words;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct ipv4 ip;

		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
			return 0;
		at = (ip.version_words & 0xf) * 4;
		length = bpf_ntohs(ip.length);
		protocol = ip.protocol;
	} else {
		struct ipv6 ip;

		if (bpf_skb_load_bytes_relative(skb, 0, &ip, sizeof(ip), BPF_HDR_START_NET))
			return 0;
		at = sizeof(ip);
		length = at + bpf_ntohs(ip.length);
		protocol = ip.next;
	}
	if (protocol == JV_UDP)
		return 1;
	if (protocol != JV_TCP ||
	    bpf_skb_load_bytes_relative(skb, at + 12, &words, sizeof(words), BPF_HDR_START_NET))
		return 0;
	return length > at + (words >> 4) * 4;
}

/* When the next turn begins; 0: it is a turn now. */
static __always_inline __u64 jv_next_turn(const struct shaping *c, __u64 now)
{
	__u64 since;

	if (!c->period)
		return 0;
	since = (now + c->period - c->offset) % c->period;
	return since < c->length ? 0 : now + c->period - since;
}

/* When a packet leaves that waits for the turn: once the trickle has made up for those before
 * it, at the turn at the latest. 0: too much waits already. */
static __always_inline __u64 jv_trickle(const struct shaping *c, struct shaped *s, __u64 turn, __u64 bits, __u64 now)
{
	__u64 leaves = s->trickle_until;

	if (s->turn != turn || leaves < now)
		leaves = now;
	if (leaves - now > c->trickle_most)
		return 0;
	s->turn = turn;
	s->trickle_until = leaves + bits * JV_SECOND / c->trickle;
	return leaves < turn ? leaves : turn;
}

/* When a packet leaves that may leave from a time on, below the ceiling. 0: too much waits. */
static __always_inline __u64 jv_below_ceiling(const struct shaping *c, __u64 *until, __u64 from, __u64 bits)
{
	__u64 leaves = *until > from ? *until : from;

	if (leaves - from > c->ceiling_most)
		return 0;
	*until = leaves + bits * JV_SECOND / c->ceiling;
	return leaves;
}

/* When a packet leaves; 0: it is dropped. waits: it waits for a turn. */
static __always_inline __u64 jv_departure(const struct shaping *c, struct shaped *s, int waits, __u64 bits, __u64 now)
{
	__u64 turn = jv_next_turn(c, now), leaves = now;

	bpf_spin_lock(&s->lock);
	if (turn && waits)
		leaves = jv_trickle(c, s, turn, bits, now);
	if (leaves && c->ceiling)
		leaves = jv_below_ceiling(c, turn && !waits ? &s->small_until : &s->ceiling_until, leaves, bits);
	bpf_spin_unlock(&s->lock);
	return leaves;
}

SEC("tc")
int jv_shape(struct __sk_buff *skb)
{
	struct shaping *c = jv_only(&jv_shaping);
	struct shaped *s = jv_only(&jv_shaped);
	__u64 now, leaves, stamp, *flow;
	int waits;

	if (!c || !s || !(c->period | c->ceiling))
		return TC_ACT_UNSPEC;
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		goto pass;
	now = jv_now();
	flow = jv_flow(skb);
	if (!flow || !jv_leased(now))
		goto pass;
	waits = skb->len >= JV_SMALL || (*flow + JV_DRAINED > now && jv_has_data(skb));
	leaves = jv_departure(c, s, waits, (__u64)skb->len * JV_BITS, now);
	if (!leaves)
		return TC_ACT_SHOT;
	if (!waits && leaves == now)
		goto pass;
	if (leaves < *flow)
		leaves = *flow;
	stamp = skb->tstamp;
	if (stamp > leaves && stamp <= now + JV_OWN_STAMP)
		leaves = stamp;
	*flow = leaves;
	skb->tstamp = leaves;
	return TC_ACT_UNSPEC;
pass:
	skb->priority = JV_FIRST_IN_LINE;
	return TC_ACT_UNSPEC;
}

char jv_license[] SEC("license") = "Apache-2.0";
