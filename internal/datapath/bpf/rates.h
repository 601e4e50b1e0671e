/* SPDX-License-Identifier: Apache-2.0 */
/* How fast packets come, and what is decided from that. Sums only ever grow, and are noted
 * at the start of each slot: the last second is a difference, which needs no clearing. */
#ifndef JV_RATES_H
#define JV_RATES_H

#include "flood.h"

/* Most packets of a second that windows are reckoned for, so that products fit. */
#define JV_MOST_PACKETS 1000000000ULL

/* The longest window of the grid that is no longer than a time. */
static __always_inline __u64 jv_on_grid(__u64 longest)
{
	__u64 window = JV_LONGEST_WINDOW;
	int i;

	for (i = 0; i < 4; i++) {
		if (window <= longest)
			return window;
		window /= 2;
	}
	return 0;
}

/* The window that a guest lets us hold its packets for. */
static __always_inline __u64 jv_tolerated(__u64 window, __u64 now)
{
	struct guest *guest = jv_only(&jv_guest);

	if (!guest || !guest->at || (__s64)(now - guest->at) > (__s64)JV_DECLARED_FOR || guest->tolerated >= window)
		return window;
	return jv_on_grid(guest->tolerated);
}

/* The longest part of a window in which no more packets come than fit the guest's ring;
 * 0 when they are too few to be worth it, or so many that the ring batches by itself. */
static __always_inline __u64 jv_fit(__u64 window, __u64 packets)
{
	int i;

	if (packets > JV_MOST_PACKETS)
		packets = JV_MOST_PACKETS;
	for (i = 0; i < 7 && window * packets > JV_MOST_IN_WINDOW * JV_SECOND; i++)
		window /= 2;
	if (window < JV_LEAST_WINDOW || window * packets < JV_LEAST_IN_WINDOW * JV_SECOND)
		return 0;
	return window;
}

/* The window until the next decision, from the second that was decided by. */
JV_FUNCTION __u64 jv_choose_window(const struct config *c, const struct state *s, __u64 now)
{
	const struct sums *last;

	if (!c || !s)
		return 0;
	last = &s->last;
	if (s->flooded && c->flood_window)
		return jv_fit(c->flood_window, last->packets);
	/* Who wakes for the first of so many finds the others without our help. */
	if (!s->fast || last->packets >= last->arrivals * c->most_arrivals)
		return 0;
	return jv_fit(jv_tolerated(c->window, now), last->packets);
}

/* Whether packets come fast: at once when they do, no longer once they came slower for
 * the hold time. */
static __always_inline void jv_decide_fast(const struct config *c, struct state *s, __u64 at)
{
	__u64 packets = s->last.packets;

	if (packets >= c->off)
		s->slow_since = 0;
	else if (!s->slow_since)
		s->slow_since = at;
	if (packets >= c->on)
		s->fast = 1;
	else if (s->slow_since && at - s->slow_since >= c->hold)
		s->fast = 0;
}

static __always_inline void jv_sums_now(const struct state *s, struct sums *sums)
{
	sums->packets = s->passed + s->held;
	sums->bytes = s->bytes;
	sums->segments = sums->packets + s->more_segments;
	sums->arrivals = s->arrivals;
	sums->syn = s->syn;
	sums->service_segments = s->service_segments;
	sums->service_bytes = s->service_bytes;
	sums->sent = s->sent;
	sums->talk = s->talk;
}

/* Decides at the start of a slot, which has been reached. */
JV_FUNCTION int jv_decide(const struct config *c, struct state *s, const struct sums *sums, __u64 slot)
{
	const struct sums *start;
	__u64 at = slot * JV_SLOT;

	if (!c || !s || !sums)
		return 0;
	start = &s->starts[(slot - JV_SLOTS) % JV_KEPT];
	s->last.packets = sums->packets - start->packets;
	s->last.bytes = sums->bytes - start->bytes;
	s->last.segments = sums->segments - start->segments;
	s->last.arrivals = sums->arrivals - start->arrivals;
	s->last.syn = sums->syn - start->syn;
	s->last.service_segments = sums->service_segments - start->service_segments;
	s->last.service_bytes = sums->service_bytes - start->service_bytes;
	s->last.sent = sums->sent - start->sent;
	s->last.talk = sums->talk - start->talk;
	if (s->window)
		s->active += JV_SLOT;
	jv_decide_fast(c, s, at);
	jv_turn_sketch(s, slot);
	jv_decide_flood(c, s, at);
	s->window = jv_choose_window(c, s, at);
	s->starts[slot % JV_KEPT] = *sums;
	return 0;
}

/* Takes the decisions that are due, each slot's as if a packet had come at its start; of a
 * long pause those that matter. One CPU does, others go on by what was decided before. */
JV_FUNCTION int jv_roll(const struct config *c, struct state *s, __u64 now)
{
	__u64 end, slot, next;
	struct sums sums;
	int i;

	if (!c || !s)
		return 0;
	end = s->slot_end;
	slot = now / JV_SLOT;
	next = end / JV_SLOT;
	if (now < end || __sync_val_compare_and_swap(&s->slot_end, end, (slot + 1) * JV_SLOT) != end)
		return 0;
	s->begun++;
	jv_sums_now(s, &sums);
	for (i = 0; i < JV_KEPT && next + i <= slot; i++)
		jv_decide(c, s, &sums, next + i);
	if (next + JV_KEPT <= slot) {
		if (next + JV_USUAL <= slot)
			__builtin_memset(&s->usual, 0, sizeof(s->usual));
		jv_decide(c, s, &sums, slot);
	}
	s->generation = c->generation;
	s->ended++;
	return 0;
}

/* Goes by another configuration, or declaration, before the next decision is due. */
static __always_inline void jv_choose_anew(const struct config *c, struct state *s, __u64 now)
{
	s->generation = c->generation;
	s->window = jv_choose_window(c, s, now);
}

/* How many segments a packet is on the wire. */
static __always_inline __u64 jv_segments(struct __sk_buff *skb)
{
	__u64 segments = skb->gso_segs;

	if (!segments && skb->gso_size) /* a VM's: it leaves the number to others */
		segments = (skb->len + skb->gso_size - 1) / skb->gso_size;
	return segments ? segments : 1;
}

/* Counts a packet, but for whether it was held. Two CPUs may both begin an arrival. */
static __always_inline void jv_count(const struct config *c, struct state *s, __u64 now, __u64 segments, __u64 bytes)
{
	__s64 gap = now - s->last_arrival;

	s->last_arrival = now;
	if (gap < 0 || gap > (__s64)c->gap)
		jv_add(&s->arrivals, 1);
	jv_add(&s->bytes, bytes);
	if (segments > 1)
		jv_add(&s->more_segments, segments - 1);
}

#endif
