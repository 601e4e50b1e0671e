//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the packets that leave through a device and has the queueing discipline fq release
 * them in bunches: see docs/design/shaping-and-buffering.md. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "declarations.h"
#include "maps.h"
#include "parse.h"
#include "rates.h"
#include "stamp.h"

/* Connections are set up at once, unless that is what a flood does. */
static __always_inline int jv_is_exempt(const struct config *c, const struct state *s, const struct packet *p)
{
	return p->control || (p->opens && !(s->flooded && c->flood_window));
}

/* Decides about one packet. */
static __always_inline void jv_decide_packet(struct __sk_buff *skb, const struct config *c, struct state *s, __u64 now)
{
	__u64 segments = jv_segments(skb), bytes = skb->len, window;
	struct packet p = {};

	jv_count(c, s, now, segments, bytes);
	window = s->window;
	if (window && !jv_leased(now))
		window = 0;
	if (window || s->watched_since || now < s->latest)
		jv_parse(skb, &p);
	if (s->watched_since)
		jv_watch(c, s, &p, segments, bytes);
	if (!window && now >= s->latest)
		goto pass;
	if (jv_is_exempt(c, s, &p)) {
		jv_add(&s->exempt, 1);
		goto pass;
	}
	if (window)
		jv_hold_packet(s, skb, window, now);
	else if (!jv_keep_order(s, skb, now))
		goto pass;
	jv_add(&s->held, 1);
	return;
pass:
	jv_clear_foreign(skb, now);
	jv_add(&s->passed, 1);
}

/* Once nothing is to be held any more, what was held leaves in order. */
static __always_inline void jv_let_out(struct __sk_buff *skb, const struct config *c, struct state *s)
{
	struct packet p = {};
	__u64 now;

	if (!s->latest)
		return;
	now = jv_now();
	if (now >= s->latest)
		return;
	jv_parse(skb, &p);
	if (!jv_is_exempt(c, s, &p))
		jv_keep_order(s, skb, now);
}

/* For what leaves through the device. Other programs go on with the packet. */
SEC("tc")
int jv_egress(struct __sk_buff *skb)
{
	struct config *c = jv_only(&jv_config);
	struct state *s = jv_only(&jv_state);
	__u64 now;

	if (!c || !s)
		return TC_ACT_UNSPEC;
	if (!(c->window | c->flood_window)) {
		jv_let_out(skb, c, s);
		return TC_ACT_UNSPEC;
	}
	now = jv_now();
	if (now >= s->slot_end)
		jv_roll(c, s, now);
	else if (s->generation != c->generation)
		jv_choose_anew(c, s, now);
	jv_decide_packet(skb, c, s, now);
	return TC_ACT_UNSPEC;
}

/* For what comes in through it. */
SEC("tc")
int jv_ingress(struct __sk_buff *skb)
{
	struct config *c = jv_only(&jv_config);
	struct state *s = jv_only(&jv_state);
	__u64 segments;

	if (!c || !s)
		return TC_ACT_UNSPEC;
	segments = jv_segments(skb);
	jv_add(&s->sent, segments);
	if (s->watched_since)
		jv_watch_sent(skb, s, segments);
	if (skb->protocol != bpf_htons(JV_ETHERTYPE))
		return TC_ACT_UNSPEC;
	return jv_receive(skb, c, s);
}

char jv_license[] SEC("license") = "Apache-2.0";
