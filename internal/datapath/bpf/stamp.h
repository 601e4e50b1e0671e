/* SPDX-License-Identifier: Apache-2.0 */
/* When a packet leaves. */
#ifndef JV_STAMP_H
#define JV_STAMP_H

#include "maps.h"

/* Stamps further ahead are of another clock. */
#define JV_MONOTONIC (10 * JV_SECOND)
/* Deadlines further ahead are a sender's own: nobody else who shares the flow's entry is to
 * wait for them. */
#define JV_REMEMBERED (JV_SECOND / 10)
#define JV_TRIES 8

/* Raises a number that other CPUs may raise too, and returns what it is then. */
static __always_inline __u64 jv_raise(__u64 *number, __u64 to)
{
	__u64 seen = *number, before;
	int i;

	for (i = 0; i < JV_TRIES && seen < to; i++) {
		before = __sync_val_compare_and_swap(number, seen, to);
		if (before == seen)
			return to;
		seen = before;
	}
	return seen > to ? seen : to;
}

/* The time from which a packet may leave by its sender's will. */
static __always_inline __u64 jv_earliest(struct __sk_buff *skb, __u64 now)
{
	__u64 stamp = skb->tstamp;

	return stamp > now && stamp < now + JV_MONOTONIC ? stamp : now;
}

/* fq would take the stamp of another clock for one of its own, and keep the packet for as
 * long as it keeps any. */
static __always_inline void jv_clear_foreign(struct __sk_buff *skb, __u64 now)
{
	if (skb->tstamp >= now + JV_MONOTONIC)
		skb->tstamp = 0;
}

/* A bunch is what leaves at one time. */
static __always_inline void jv_count_bunch(struct state *s, __u64 deadline)
{
	__u64 *seen = &s->seen[(deadline * 0x9E3779B97F4A7C15ULL) >> 58];

	if (*seen != deadline && __sync_lock_test_and_set(seen, deadline) != deadline)
		jv_add(&s->bunches, 1);
}

/* Holds a packet until the next boundary, and until those of its flow leave that were held
 * before. */
static __always_inline void jv_hold_packet(struct state *s, struct __sk_buff *skb, __u64 window, __u64 now)
{
	__u64 earliest = jv_earliest(skb, now);
	__u64 deadline = (earliest + window - 1) / window * window;
	__u64 *flow = jv_flow(skb);

	if (flow && deadline - now <= JV_REMEMBERED) {
		deadline = jv_raise(flow, deadline);
		if (deadline > s->latest)
			jv_raise(&s->latest, deadline);
	}
	skb->tstamp = deadline;
	jv_count_bunch(s, deadline);
}

/* Lets a packet leave, but not before those of its flow that were held. Returns whether
 * it has to wait. */
static __always_inline int jv_keep_order(struct state *s, struct __sk_buff *skb, __u64 now)
{
	__u64 *flow = jv_flow(skb);

	if (!flow || *flow <= now)
		return 0;
	if (jv_earliest(skb, now) < *flow) {
		skb->tstamp = *flow;
		jv_count_bunch(s, *flow);
	}
	return 1;
}

#endif
