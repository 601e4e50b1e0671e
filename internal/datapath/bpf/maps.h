/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of one device whose packets are held. */
#ifndef JV_MAPS_H
#define JV_MAPS_H

#include "common.h"
#include "types.h"

JV_ONE(jv_config, struct config);
JV_ONE(jv_state, struct state);
JV_ONE(jv_sources, struct sources);
JV_ONE(jv_guest, struct guest);

/* Verified once and by itself, not with all that may come before each of its calls: loading
 * is a tenth of the work. The verifier wants pointers to be checked. */
#define JV_FUNCTION __noinline

/* Counters are shared by all CPUs that send through the device. */
#define jv_add(COUNTER, BY) __sync_fetch_and_add(COUNTER, BY)

#endif
