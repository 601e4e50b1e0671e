/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest declares of itself, and the answer. */
#ifndef JV_DECLARATIONS_H
#define JV_DECLARATIONS_H

#include <linux/pkt_cls.h>

#include "inband.h"
#include "rates.h"

/* The part of a frame that is not padding. */
#define JV_MEANINGFUL __builtin_offsetof(struct jv_frame, padding)

static __always_inline int jv_may_declare(struct state *s, __u64 now)
{
	__u64 second = now / JV_SECOND + 1, before = s->declared_second;

	if (second != before && __sync_val_compare_and_swap(&s->declared_second, before, second) == before)
		s->declared = 0;
	return __sync_fetch_and_add(&s->declared, 1) < JV_DECLARATIONS;
}

static __always_inline int jv_is_declaration(const struct jv_frame *f)
{
	return f->version == JV_VERSION && f->kind == JV_DECLARATION && !(f->source[0] & 1) &&
	       f->destination[0] == 0x01 && f->destination[1] == 0x80 && f->destination[2] == 0xC2 &&
	       f->destination[3] == 0x00 && f->destination[4] == 0x00 && f->destination[5] == 0x0E;
}

static __always_inline void jv_store(struct guest *guest, const struct jv_frame *f, __u64 now)
{
	guest->tolerated = bpf_ntohl(f->window_us) * 1000ULL;
	guest->transmit_us = bpf_ntohl(f->second);
	guest->flags = bpf_ntohs(f->flags);
	guest->at = now;
}

/* Sends the frame back as the answer. */
static __always_inline int jv_answer(struct __sk_buff *skb, const struct config *c, struct jv_frame *f, __u64 now)
{
	__u64 window = jv_leased(now) ? jv_tolerated(c->window, now) : 0;
	struct jv_frame answer = *f;

	__builtin_memcpy(answer.destination, f->source, sizeof(answer.destination));
	__builtin_memcpy(answer.source, f->destination, sizeof(answer.source));
	answer.kind = JV_ANSWER;
	answer.flags = 0;
	answer.window_us = bpf_htonl(window / 1000);
	answer.second = bpf_htonl(c->on);
	if (bpf_skb_store_bytes(skb, 0, &answer, JV_MEANINGFUL, 0))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* Receives a frame of the EtherType of guests. Those of others, who may use
 * it too, go on. */
static __noinline int jv_receive(struct __sk_buff *skb, const struct config *c, struct state *s)
{
	struct guest *guest = jv_only(&jv_guest);
	struct jv_frame f = {};
	__u64 now;

	if (bpf_skb_load_bytes(skb, __builtin_offsetof(struct jv_frame, magic), &f.magic, sizeof(f.magic)) ||
	    f.magic != bpf_htonl(JV_MAGIC))
		return TC_ACT_UNSPEC;
	now = jv_now();
	if (!guest || bpf_skb_load_bytes(skb, 0, &f, JV_MEANINGFUL) || !jv_is_declaration(&f) || !jv_may_declare(s, now)) {
		jv_add(&s->refused, 1);
		return TC_ACT_SHOT;
	}
	jv_store(guest, &f, now);
	jv_add(&s->taken, 1);
	s->generation = 0; /* have the window chosen anew */
	return jv_answer(skb, c, &f, now);
}

#endif
