/* What this processor offers and the operating system permits. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stddef.h>

enum cpu_feature {
    CPU_AVX2 = 1u << 0,        /* AVX2, FMA and F16C together */
    CPU_AVX512 = 1u << 1,      /* F, BW, DQ, VL */
    CPU_AVX512_VNNI = 1u << 2, /* with VBMI */
    CPU_AVX512_BF16 = 1u << 3,
    CPU_AMX_INT8 = 1u << 4, /* only after the kernel granted tile state and a trial did not fault */
    CPU_AMX_BF16 = 1u << 5,
    CPU_NEON = 1u << 6,    /* every 64-bit Arm */
    CPU_DOTPROD = 1u << 7, /* sdot, udot */
    CPU_I8MM = 1u << 8,    /* smmla; with dotprod, as every processor that has it does */
    CPU_ARM_BF16 = 1u << 9,
};

struct cpu_info {
    char model[64];     /* "AMD EPYC 9R14"; "Cortex-X925 + Cortex-A725" where cores differ */
    unsigned features;  /* OR of enum cpu_feature */
    int cores;          /* cores this process may run on (affinity and cgroup quota) */
    size_t l1d, l2, l3; /* bytes, 0 when unknown */
};

const struct cpu_info *cpu_info(void); /* probed once, never NULL */

/* "avx512_vnni" for CPU_AVX512_VNNI. `feature` is a single bit. */
const char *cpu_feature_name(unsigned feature);
/* Lets tests pretend that features are absent: they are cleared from cpu_info() from now on. */
void cpu_mask_features(unsigned absent);

#endif
