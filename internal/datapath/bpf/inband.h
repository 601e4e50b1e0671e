/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest and its host send one another, in frames of the local-experimental
 * EtherType that never leave the node: see docs/design/shaping-and-buffering.md. All numbers are in
 * network byte order. */
#ifndef JV_INBAND_H
#define JV_INBAND_H

#define JV_ETHERTYPE 0x88B5
#define JV_MAGIC 0x4A564542 /* "JVEB" */
#define JV_VERSION 1
#define JV_DECLARATION 1 /* of a guest */
#define JV_ANSWER 2      /* of its host */
#define JV_FLAG_DEFERS 1 /* the guest defers its receive interrupts */

struct jv_frame {
	__u8 destination[6]; /* 01:80:C2:00:00:0E, which bridges do not forward */
	__u8 source[6];
	__be16 ethertype;
	__be32 magic;
	__u8 version;
	__u8 kind;
	__be16 flags;
	__be32 nonce; /* an answer repeats the declaration's */
	/* Declaration: the longest window that the guest tolerates, in us; 0: none.
	 * Answer: the window that the guest may hold what it sends for; 0: none. */
	__be32 window_us;
	/* Declaration: the window of what it sends now; 0: it holds nothing.
	 * Answer: the packets per second from which the guest may hold. */
	__be32 second;
	__u8 padding[26]; /* zero: the least size of a frame is 60 */
} __attribute__((packed));

#endif
