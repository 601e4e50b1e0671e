/* SPDX-License-Identifier: Apache-2.0 */
/* What all programs share: the lease, the memory of flows, and the clock. */
#ifndef JV_COMMON_H
#define JV_COMMON_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define JV_SECOND 1000000000ULL
#define JV_FLOWS 4096

#define JV_ONE(NAME, TYPE)                         \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(max_entries, 1);            \
		__type(key, __u32);                \
		__type(value, TYPE);               \
	} NAME SEC(".maps")

/* Until when packets may be held. All devices share it. */
JV_ONE(jv_lease, __u64);

/* When the last packet of each flow of a device leaves, by the flow's hash: flows that have
 * the same hash share an entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JV_FLOWS);
	__type(key, __u32);
	__type(value, __u64);
} jv_flows SEC(".maps");

#ifdef JV_TEST_CLOCK
JV_ONE(jv_clock, __u64);
#endif

/* The only entry of a map, which is always there: the verifier wants to see it asked. */
static __always_inline void *jv_only(void *map)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(map, &zero);
}

/* The time of CLOCK_MONOTONIC, which is also the clock of fq. */
static __always_inline __u64 jv_now(void)
{
#ifdef JV_TEST_CLOCK
	__u64 *clock = jv_only(&jv_clock);

	return clock ? *clock : 0;
#else
	return bpf_ktime_get_ns();
#endif
}

static __always_inline int jv_leased(__u64 now)
{
	__u64 *until = jv_only(&jv_lease);

	return until && now < *until;
}

static __always_inline __u64 *jv_flow(struct __sk_buff *skb)
{
	__u32 flow = bpf_get_hash_recalc(skb) % JV_FLOWS;

	return bpf_map_lookup_elem(&jv_flows, &flow);
}

#endif
