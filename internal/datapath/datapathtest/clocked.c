//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* The programs with a clock that tests set, and what tests ask beside. Never shipped. */
#define JV_TEST_CLOCK
#include "../bpf/buffer.c"

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

/* A packet whose tag is beside the data, as cards leave it. */
SEC("tc")
int jv_hold_tagged(struct __sk_buff *skb)
{
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 5))
		return TC_ACT_SHOT;
	return jv_hold(skb);
}
