/* The counters of a stream: words of device memory, 0 when the stream is made, with which the
 * blocks of a kernel find out who of them is the last. That one sets them to 0 again. Kernels get
 * them in their arguments, so that kernels on other streams count elsewhere.
 *
 * On one stream no two kernels have them at the same time, though the next one may start early
 * (`overlaps`): a kernel touches them only behind wait_for_input(), and that returns when the
 * kernel before it has ended, and so all before that, since each kernel has a block that waits
 * before it ends. Each use has words of its own all the same: a kernel that left some behind would
 * make no other one wrong. */
#ifndef KERNELS_COUNTERS_ARGS_H
#define KERNELS_COUNTERS_ARGS_H

enum {
    COUNTER_ROUTED = 0,  /* attn_out: rows whose experts are chosen */
    COUNTER_TILES = 1,   /* self_attention: tiles that blocks have taken */
    COUNTER_PIECES = 32, /* attention_decode: finished pieces, of each row and key head */
    COUNTER_PIECES_MAX = 4096,
    COUNTERS = COUNTER_PIECES + COUNTER_PIECES_MAX,
};

#endif
