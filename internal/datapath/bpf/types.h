/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of one device share with user space. */
#ifndef JV_TYPES_H
#define JV_TYPES_H

/* Decisions are taken at the start of each slot, about the JV_SLOTS slots before. */
#define JV_SLOT (JV_SECOND / 8)
#define JV_SLOTS 8
/* Sums are kept for a power of two of slots, at least JV_SLOTS + 1. */
#define JV_KEPT 16

#define JV_SOURCES 4096
#define JV_SERVICES 8
#define JV_SEEN 64

/* Slots after which a mean has forgotten two thirds: 64 s. */
#define JV_USUAL 512

#define JV_LONGEST_WINDOW 1000000ULL
#define JV_SHORTEST_WINDOW 125000ULL
/* Timers do not keep up with windows shorter than this. */
#define JV_LEAST_WINDOW 15000ULL
/* A bunch has to fit the guest's ring, which has 256 entries as a rule. */
#define JV_MOST_IN_WINDOW 128
/* A timer for one packet costs more than its interrupt. */
#define JV_LEAST_IN_WINDOW 2

/* A guest's declaration stands for so long, and so many are read in a second. */
#define JV_DECLARED_FOR (30 * JV_SECOND)
#define JV_DECLARATIONS 10

/* How packets are held. All times are ns, all rates of a second. */
struct config {
	__u64 generation; /* another one with each change, never 0 */
	__u64 window;
	__u64 flood_window;
	__u64 hold;
	__u64 gap;
	__u32 on;
	__u32 off;
	__u32 most_arrivals;
	__u32 flood_packets; /* 0: floods are not detected */
	__u32 flood_bytes;
	__u32 seed; /* for the hash of sources */
	__u32 services[JV_SERVICES]; /* 1 << 31 | UDP << 16 | port; 0: none */
};

/* Counters since the program was made. */
struct sums {
	__u64 packets;
	__u64 bytes;
	__u64 segments;
	__u64 arrivals;
	__u64 sent; /* segments from the VM */
	/* Counted while a flood is possible: */
	__u64 syn;
	__u64 service_segments;
	__u64 service_bytes;
	__u64 talk; /* segments from the VM that are its part of a conversation */
};

/* What of a second may be a flood: all but what services are granted. */
struct suspects {
	__u64 segments;
	__u64 bytes;
};

/* What a second has as a rule, times JV_USUAL: a mean that forgets, of seconds without a flood. */
struct usual {
	struct suspects suspects;
	__u64 service_segments;
	__u64 sent;
};

/* What one device's programs know. */
struct state {
	/* For each packet: */
	__u64 slot_end;	  /* when the next decision is due */
	__u64 generation; /* of the configuration that was decided by */
	__u64 window;	  /* in force until then; 0: packets are not held */
	__u64 latest;	  /* deadline that a flow has */
	__u64 passed;
	__u64 held;
	__u64 bytes;
	__u64 last_arrival;
	/* For some: */
	__u64 arrivals;
	__u64 more_segments; /* than packets */
	__u64 exempt;
	__u64 bunches;
	__u64 watched_since; /* that a flood is possible; 0: it is not */
	__u64 syn;
	__u64 service_segments;
	__u64 service_bytes;
	__u64 sent;
	__u64 talk;
	/* Of decisions: */
	__u64 begun;
	__u64 ended; /* as many as begun when none is being taken */
	__u64 fast;  /* packets come fast enough */
	__u64 slow_since;
	__u64 active;
	struct sums last; /* the second that was decided by */
	__u64 flooded;
	__u64 flood_weak_since;
	__u64 floods;
	struct usual usual;
	struct sums evidence;
	struct suspects evidence_suspects;
	__u64 evidence_bits;
	/* Of the sketch of sources: */
	__u64 second;
	__u64 bits;
	__u64 last_bits;
	/* Of declarations: */
	__u64 taken;
	__u64 refused;
	__u64 declared_second;
	__u64 declared;
	/* Sums at the start of slot s are in starts[s % JV_KEPT]. */
	struct sums starts[JV_KEPT];
	/* Deadlines that were counted as a bunch, by a hash of theirs. */
	__u64 seen[JV_SEEN];
};

/* Bit of the sketch is set when it holds the running second. */
struct sources {
	__u32 set[JV_SOURCES];
};

/* What the guest declared last. */
struct guest {
	__u64 at; /* 0: never */
	__u64 tolerated;
	__u32 transmit_us;
	__u32 flags;
};

#endif
