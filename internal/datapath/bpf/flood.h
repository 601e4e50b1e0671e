/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the device is under a flood of small packets. What it takes to tell is looked
 * at only while segments come nearly fast enough. */
#ifndef JV_FLOOD_H
#define JV_FLOOD_H

#include "maps.h"
#include "parse.h"

/* Shares, of 100, from which and down to which a flood is looked for, and below which the
 * signs of one are too weak. */
#define JV_WATCH 70
#define JV_UNWATCH 50
#define JV_WEAK 70
/* How many times the usual rate is sudden, and the share, of 100, of its packets that a VM
 * talks back to at most in a flood. One that acknowledges talks back to half. */
#define JV_SUDDEN 3
#define JV_TALK 25

static __always_inline int jv_is_service(const struct config *c, __u32 service)
{
	int i;

	if (!service)
		return 0;
	for (i = 0; i < JV_SERVICES; i++)
		if (c->services[i] == service)
			return 1;
	return 0;
}

/* Counts sources by the bits that they set: the more, the more bits are hit again. */
static __always_inline void jv_count_source(const struct config *c, struct state *s, __u32 source)
{
	struct sources *sources = jv_only(&jv_sources);
	__u32 second = s->second;
	__u32 bit = ((source ^ c->seed) * 0x9E3779B1U) >> 20;

	if (sources && sources->set[bit] != second && __sync_lock_test_and_set(&sources->set[bit], second) != second)
		jv_add(&s->bits, 1);
}

/* Counts what tells a flood from other fast packets. */
static __always_inline void jv_watch(const struct config *c, struct state *s, const struct packet *p,
				     __u64 segments, __u64 bytes)
{
	if (jv_is_service(c, p->service)) {
		jv_add(&s->service_segments, segments);
		jv_add(&s->service_bytes, bytes);
		return;
	}
	if (p->syn)
		jv_add(&s->syn, 1);
	if (p->has_source)
		jv_count_source(c, s, p->source);
}

/* Starts the sketch anew with each second. Bits set before hold an older second. */
static __always_inline void jv_turn_sketch(struct state *s, __u64 slot)
{
	__u64 second = slot / JV_SLOTS + 1;

	if (second == s->second)
		return;
	s->last_bits = second == s->second + 1 ? s->bits : 0;
	s->second = second;
	s->bits = 0;
}

/* Counts what the VM sends while a flood is possible. Answers that it gives to strangers are
 * no talk: SYN-ACK, RST and ICMP. */
static __always_inline void jv_watch_sent(struct __sk_buff *skb, struct state *s, __u64 segments)
{
	struct packet p = {};

	jv_parse(skb, &p);
	if (p.talks)
		jv_add(&s->talk, segments);
}

/* Services are granted what makes a flood, or as much more than usual as is sudden. */
static __always_inline void jv_suspect(const struct config *c, const struct state *s, struct suspects *suspects)
{
	const struct sums *last = &s->last;
	__u64 services = last->service_segments, bytes = last->service_bytes;
	__u64 granted = s->usual.service_segments / JV_USUAL * JV_SUDDEN;

	if (granted < c->flood_packets)
		granted = c->flood_packets;
	if (services > granted) {
		bytes = bytes * granted / services;
		services = granted;
	}
	/* Packets may be counted as a service's and not yet as packets. */
	suspects->segments = last->segments > services ? last->segments - services : 0;
	suspects->bytes = last->bytes > bytes ? last->bytes - bytes : 0;
}

/* Tells whether a second shows a flood, to a share of 100 of what makes one: suddenly many
 * more packets than usual, which are small, and which the VM hardly talks back to. */
static __always_inline int jv_shows_flood(const struct config *c, const struct state *s,
					  const struct suspects *suspects, __s64 share)
{
	__s64 usual = s->usual.suspects.segments / JV_USUAL;
	__s64 more = suspects->segments - usual;
	__s64 bytes = suspects->bytes - s->usual.suspects.bytes / JV_USUAL;
	__s64 talk = s->last.talk - s->usual.sent / JV_USUAL;

	if (more * 100 < c->flood_packets * share || (__s64)suspects->segments * 100 < usual * JV_SUDDEN * share)
		return 0;
	return bytes * share <= more * c->flood_bytes * 100 && talk * share <= more * JV_TALK;
}

static __always_inline void jv_learn(__u64 *usual, __u64 is)
{
	*usual += is - *usual / JV_USUAL;
}

static __always_inline void jv_learn_usual(struct state *s, const struct suspects *suspects)
{
	struct usual *usual = &s->usual;

	jv_learn(&usual->suspects.segments, suspects->segments);
	jv_learn(&usual->suspects.bytes, suspects->bytes);
	jv_learn(&usual->service_segments, s->last.service_segments);
	jv_learn(&usual->sent, s->last.sent);
}

static __always_inline void jv_decide_flood(const struct config *c, struct state *s, __u64 at)
{
	__u64 bits = s->bits > s->last_bits ? s->bits : s->last_bits;
	__u64 segments = s->last.segments;
	struct suspects suspects;

	jv_suspect(c, s, &suspects);
	if (!c->flood_packets || segments * 100 < (__u64)c->flood_packets * JV_UNWATCH)
		s->watched_since = 0;
	else if (!s->watched_since && segments * 100 >= (__u64)c->flood_packets * JV_WATCH)
		s->watched_since = at;
	if (!s->flooded) {
		/* Only a second that was watched throughout is evidence. */
		if (!s->watched_since || at - s->watched_since < JV_SECOND || !jv_shows_flood(c, s, &suspects, 100)) {
			jv_learn_usual(s, &suspects);
			return;
		}
		s->flooded = 1;
		s->floods++;
	} else if (!jv_shows_flood(c, s, &suspects, JV_WEAK)) {
		if (!s->flood_weak_since)
			s->flood_weak_since = at;
		if (at - s->flood_weak_since >= c->hold)
			s->flooded = 0;
		return;
	}
	s->flood_weak_since = 0;
	s->evidence = s->last;
	s->evidence_suspects = suspects;
	s->evidence_bits = bits;
}

#endif
