/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of one device, of which only the lease is shared with other devices, and the clock. */
#ifndef JV_MAPS_H
#define JV_MAPS_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

#define JV_ONE(NAME, TYPE)                         \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);  \
		__uint(max_entries, 1);            \
		__type(key, __u32);                \
		__type(value, TYPE);               \
	} NAME SEC(".maps")

JV_ONE(jv_config, struct config);
JV_ONE(jv_state, struct state);
JV_ONE(jv_sources, struct sources);
JV_ONE(jv_guest, struct guest);
/* Until when packets may be held. */
JV_ONE(jv_lease, __u64);

/* The last deadline of each flow, by its hash: flows that share one also share it. */
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

/* Verified once and by itself, not with all that may come before each of its calls: loading
 * is a tenth of the work. The verifier wants pointers to be checked. */
#define JV_FUNCTION __noinline

/* Counters are shared by all CPUs that send through the device. */
#define jv_add(COUNTER, BY) __sync_fetch_and_add(COUNTER, BY)

#endif
