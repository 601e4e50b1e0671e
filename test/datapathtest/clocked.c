//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* The programs with a clock that tests set, and what tests need beside. Never shipped. */
#define JV_TEST_CLOCK
#include "../../internal/datapath/bpf/buffer.c"

/* Does nothing: what running a program costs by itself. */
SEC("tc")
int jv_nothing(struct __sk_buff *skb)
{
	return TC_ACT_UNSPEC;
}

/* The entry of a packet's flow. */
SEC("tc")
int jv_flow_of(struct __sk_buff *skb)
{
	return bpf_get_hash_recalc(skb) % JV_FLOWS;
}
