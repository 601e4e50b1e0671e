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

/* Tells whether a second shows a flood, to a share of 100 of what makes one. */
static __always_inline int jv_shows_flood(const struct config *c, const struct sums *sums, __u64 bits, __u64 share)
{
	__u64 segments = sums->segments - sums->service_segments;
	__u64 bytes = sums->bytes - sums->service_bytes;

	/* Packets may be counted as a service's and not yet as packets. */
	if ((__s64)segments <= 0 || (__s64)bytes <= 0)
		return 0;
	if (segments * 100 < c->flood_packets * share || bytes * share > segments * c->flood_bytes * 100)
		return 0;
	return sums->syn * 6553600 >= segments * c->flood_syn * share || bits * 100 >= c->flood_bits * share;
}

static __always_inline void jv_decide_flood(const struct config *c, struct state *s, __u64 at)
{
	__u64 bits = s->bits > s->last_bits ? s->bits : s->last_bits;
	__u64 segments = s->last.segments;

	if (!c->flood_packets || segments * 100 < (__u64)c->flood_packets * JV_UNWATCH)
		s->watched_since = 0;
	else if (!s->watched_since && segments * 100 >= (__u64)c->flood_packets * JV_WATCH)
		s->watched_since = at;
	if (!s->flooded) {
		/* Only a second that was watched throughout is evidence. */
		if (!s->watched_since || at - s->watched_since < JV_SECOND || !jv_shows_flood(c, &s->last, bits, 100))
			return;
		s->flooded = 1;
		s->floods++;
	} else if (!jv_shows_flood(c, &s->last, bits, JV_WEAK)) {
		if (!s->flood_weak_since)
			s->flood_weak_since = at;
		if (at - s->flood_weak_since >= c->hold)
			s->flooded = 0;
		return;
	}
	s->flood_weak_since = 0;
	s->evidence = s->last;
	s->evidence_bits = bits;
}

#endif
