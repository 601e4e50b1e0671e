//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* The program that shapes, with a clock that tests set. Never shipped. */
#define JV_TEST_CLOCK
#include "../../internal/datapath/bpf/shape.c"
