/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Histograms of durations: log-linear, 8 buckets to each power of two, so that
 * no bucket is wider than an eighth of its value. internal/sched.BucketBounds
 * is the inverse.
 */
#ifndef TEMPER_PROBE_HIST_BPF_H
#define TEMPER_PROBE_HIST_BPF_H

#define HIST_SUB_BITS 3
#define HIST_TOP_BITS 40 /* 2^40 ns are 18 minutes; what is longer counts as that */

_Static_assert(TEMPER_HIST_BUCKETS == (HIST_TOP_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS,
	       "the last bucket ends at the top");

/* Below 8 ns a bucket holds one value; above, the three bits after the highest select it. */
static __always_inline u32 hist_bucket(u64 ns)
{
	u64 rest = ns;
	u32 shift = 0;

	if (ns >> HIST_TOP_BITS)
		return TEMPER_HIST_BUCKETS - 1;
	/* The position of the highest bit, which BPF lacks as an instruction. Most waits are short. */
	if (rest >> 16) {
		rest >>= 16;
		shift = 16;
		if (rest >> 16) {
			rest >>= 16;
			shift = 32;
		}
	}
	if (rest >> 8) {
		rest >>= 8;
		shift += 8;
	}
	if (rest >> 4) {
		rest >>= 4;
		shift += 4;
	}
	if (rest >> 2) {
		rest >>= 2;
		shift += 2;
	}
	shift += rest >> 1;
	if (shift < HIST_SUB_BITS)
		return ns;
	shift -= HIST_SUB_BITS;
	/* ns >> shift is 8 to 15: the 8 carries into the next power of two. */
	return (shift << HIST_SUB_BITS) + (ns >> shift);
}

#endif
