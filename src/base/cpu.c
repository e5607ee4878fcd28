/* x86: a feature counts only when the processor has it, the operating system saves its registers
 * (XCR0) and, for AMX, the kernel granted tile state on request and a trial worked. Variants are
 * built with the flags of a whole group, hence a group is one feature here.
 *
 * Arm: the kernel says in the auxiliary vector what all cores have in common; what a core is called
 * follows from its identification register (MIDR), published for each core. */
#include "base/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/sysinfo.h"

static struct cpu_info info;
static pthread_once_t probe_once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Register state that the operating system saves, in XCR0. */
enum {
    XCR0_AVX = 0x6,      /* XMM, YMM */
    XCR0_AVX512 = 0xe6,  /* and opmask, ZMM */
    XCR0_TILE = 0x60000, /* TILECFG, TILEDATA */
    XFEATURE_TILEDATA = 18,
    REQUEST_XCOMP_PERM = 0x1023, /* ARCH_REQ_XCOMP_PERM of <asm/prctl.h>, absent in older headers */
};

/* EDX of leaf 7; gcc and clang name these differently in <cpuid.h>. */
enum { LEAF7_AMX_BF16 = 1 << 22, LEAF7_AMX_TILE = 1 << 24, LEAF7_AMX_INT8 = 1 << 25 };

static bool has_bits(uint64_t word, uint64_t bits)
{
    return (word & bits) == bits;
}

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Loads a tile configuration and clears a tile: the first use of tile state, which faults where a
 * hypervisor or the kernel withholds it. */
__attribute__((target("amx-tile"))) static void touch_tile(void)
{
    _Alignas(64) unsigned char config[64] = {[0] = 1 /* palette */};
    config[16] = 64; /* tile 0: 64 bytes a row, */
    config[48] = 16; /* 16 rows */
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_release();
}

static bool tiles_work(void)
{
    if (syscall(SYS_arch_prctl, REQUEST_XCOMP_PERM, XFEATURE_TILEDATA) != 0) return false;
    pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        prctl(PR_SET_DUMPABLE, 0); /* a fault is an answer here, not worth a core file */
        signal(SIGILL, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        touch_tile();
        _exit(0);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static unsigned probe_features(void)
{
    unsigned a, b, c, d, features = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_bits(c, bit_OSXSAVE)) return 0;
    uint64_t xcr0 = read_xcr0();
    unsigned leaf1_c = c, leaf7_c, leaf7_d;

    if (!has_bits(xcr0, XCR0_AVX) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    leaf7_c = c;
    leaf7_d = d;
    if (!has_bits(leaf1_c, bit_AVX | bit_FMA | bit_F16C) || !has_bits(b, bit_AVX2)) return 0;
    features |= CPU_AVX2;

    if (!has_bits(xcr0, XCR0_AVX512) ||
        !has_bits(b, (unsigned)bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL))
        return features;
    features |= CPU_AVX512;
    if (has_bits(leaf7_c, bit_AVX512VNNI | bit_AVX512VBMI)) features |= CPU_AVX512_VNNI;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && has_bits(a, bit_AVX512BF16))
        features |= CPU_AVX512_BF16;

    if (has_bits(xcr0, XCR0_TILE) && has_bits(leaf7_d, LEAF7_AMX_TILE) && tiles_work()) {
        if (has_bits(leaf7_d, LEAF7_AMX_INT8)) features |= CPU_AMX_INT8;
        if (has_bits(leaf7_d, LEAF7_AMX_BF16)) features |= CPU_AMX_BF16;
    }
    return features;
}

static void probe_model(char *model, size_t size)
{
    unsigned words[12];
    char text[sizeof words + 1] = "";
    for (unsigned i = 0; i < 3; i++) {
        unsigned *w = words + (size_t)4 * i;
        if (!__get_cpuid(0x80000002u + i, &w[0], &w[1], &w[2], &w[3])) return;
    }
    memcpy(text, words, sizeof words);
    char *start = text + strspn(text, " ");
    size_t length = strlen(start);
    while (length && start[length - 1] == ' ') start[--length] = '\0';
    snprintf(model, size, "%s", start);
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

/* Bits of <asm/hwcap.h>, some of which older headers lack. */
enum { HWCAP_BIT_CPUID = 1 << 11, HWCAP_BIT_DOTPROD = 1 << 20 };
enum { HWCAP2_BIT_I8MM = 1 << 13, HWCAP2_BIT_BF16 = 1 << 14 };

static unsigned probe_features(void)
{
    unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    unsigned features = CPU_NEON;
    if (!(one & HWCAP_BIT_DOTPROD)) return features;
    features |= CPU_DOTPROD;
    if (two & HWCAP2_BIT_I8MM) features |= CPU_I8MM;
    if (two & HWCAP2_BIT_BF16) features |= CPU_ARM_BF16;
    return features;
}

/* Implementer and part of MIDR_EL1. */
static const struct arm_part {
    unsigned implementer, part;
    const char *name;
} arm_parts[] = {
    {0x41, 0xd03, "Cortex-A53"},  {0x41, 0xd05, "Cortex-A55"},    {0x41, 0xd07, "Cortex-A57"},
    {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd0b, "Cortex-A76"},    {0x41, 0xd0c, "Neoverse-N1"},
    {0x41, 0xd40, "Neoverse-V1"}, {0x41, 0xd49, "Neoverse-N2"},   {0x41, 0xd4f, "Neoverse-V2"},
    {0x41, 0xd80, "Cortex-A520"}, {0x41, 0xd81, "Cortex-A720"},   {0x41, 0xd82, "Cortex-X4"},
    {0x41, 0xd84, "Neoverse-V3"}, {0x41, 0xd85, "Cortex-X925"},   {0x41, 0xd87, "Cortex-A725"},
    {0x41, 0xd8e, "Neoverse-N3"}, {0xc0, 0xac3, "Ampere-1"},      {0xc0, 0xac4, "Ampere-1A"},
    {0x46, 0x001, "A64FX"},       {0x4e, 0x004, "NVIDIA Carmel"}, {0x61, 0x022, "Apple M1"},
};

static void part_name(unsigned long long midr, char *name, size_t size)
{
    unsigned implementer = midr >> 24 & 0xff, part = midr >> 4 & 0xfff;
    snprintf(name, size, "Arm part %02x:%03x", implementer, part);
    for (size_t i = 0; i < sizeof arm_parts / sizeof *arm_parts; i++)
        if (arm_parts[i].implementer == implementer && arm_parts[i].part == part)
            snprintf(name, size, "%s", arm_parts[i].name);
}

/* Adds a core's name to those found, once each, in the order of their numbers. */
static void add_part(unsigned long long midr, char *model, size_t size, bool first)
{
    char name[32];
    part_name(midr, name, sizeof name);
    if (first)
        snprintf(model, size, "%s", name);
    else if (!strstr(model, name)) {
        size_t length = strlen(model);
        snprintf(model + length, size - length, " + %s", name);
    }
}

static void probe_model(char *model, size_t size)
{
    unsigned long long midr;
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    bool first = true;
    for (long i = 0; i < cpus; i++) {
        char path[96], text[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/regs/identification/midr_el1",
                 i);
        if (!sysinfo_read(path, text, sizeof text)) continue; /* core is offline */
        midr = strtoull(text, NULL, 16);
        add_part(midr, model, size, first);
        first = false;
    }
    if (!first || !(getauxval(AT_HWCAP) & HWCAP_BIT_CPUID)) return;
    /* The kernel answers this read in the register's place, for the core that asks. */
    __asm__("mrs %0, midr_el1" : "=r"(midr));
    add_part(midr, model, size, true);
}

#else

static unsigned probe_features(void)
{
    return 0;
}

static void probe_model(char *model, size_t size)
{
    (void)model, (void)size; /* the machine's name from uname() stays */
}

#endif

/* Lowers *arg to the processors' worth of time that one cgroup allows. Rounded down: a thread more
 * than the quota pays for would have all of them stopped part of the time, in the middle of a loop.
 */
static void limit_by_cgroup(void *arg, const char *folder)
{
    int *cores = arg;
    char path[8192], text[64];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!sysinfo_read(path, text, sizeof text)) return;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return;
    long long allowed = quota < period ? 1 : quota / period;
    if (allowed < *cores) *cores = (int)allowed;
}

static int probe_cores(void)
{
    int cores = 0;
    /* The set must be as large as the kernel's, which the call only answers by refusing. */
    for (int limit = CPU_SETSIZE; cores == 0 && limit <= 1 << 20; limit *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)limit);
        if (!set) break;
        size_t size = CPU_ALLOC_SIZE((size_t)limit);
        if (sched_getaffinity(0, size, set) == 0) cores = CPU_COUNT_S(size, set);
        CPU_FREE(set);
    }
    if (cores == 0) cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1) cores = 1;
    sysinfo_cgroups(limit_by_cgroup, &cores);
    return cores;
}

/* The data or unified cache of `level` of the first processor, or `otherwise`. */
static size_t probe_cache(unsigned long long level, long otherwise)
{
    for (int index = 0; index < 16; index++) {
        char path[128], type[32], text[32];
        unsigned long long found, kib;
        const char *folder = "/sys/devices/system/cpu/cpu0/cache/index";
        snprintf(path, sizeof path, "%s%d/level", folder, index);
        if (!sysinfo_read(path, text, sizeof text)) break;
        if (!sysinfo_field(text, "", &found) || found != level) continue;
        snprintf(path, sizeof path, "%s%d/type", folder, index);
        if (sysinfo_read(path, type, sizeof type) && strncmp(type, "Instruction", 11) == 0)
            continue;
        snprintf(path, sizeof path, "%s%d/size", folder, index); /* "32K" */
        if (sysinfo_read(path, text, sizeof text) && sysinfo_field(text, "", &kib))
            return (size_t)kib * 1024;
    }
    return otherwise > 0 ? (size_t)otherwise : 0;
}

static void probe(void)
{
    struct utsname name;
    snprintf(info.model, sizeof info.model, "%s", uname(&name) == 0 ? name.machine : "unknown");
    probe_model(info.model, sizeof info.model);
    info.features = probe_features();
    info.cores = probe_cores();
    info.l1d = probe_cache(1, sysconf(_SC_LEVEL1_DCACHE_SIZE));
    info.l2 = probe_cache(2, sysconf(_SC_LEVEL2_CACHE_SIZE));
    info.l3 = probe_cache(3, sysconf(_SC_LEVEL3_CACHE_SIZE));
}

const struct cpu_info *cpu_info(void)
{
    pthread_once(&probe_once, probe);
    return &info;
}

const char *cpu_feature_name(unsigned feature)
{
    switch (feature) {
    case CPU_AVX2:
        return "avx2";
    case CPU_AVX512:
        return "avx512";
    case CPU_AVX512_VNNI:
        return "avx512_vnni";
    case CPU_AVX512_BF16:
        return "avx512_bf16";
    case CPU_AMX_INT8:
        return "amx_int8";
    case CPU_AMX_BF16:
        return "amx_bf16";
    case CPU_NEON:
        return "neon";
    case CPU_DOTPROD:
        return "dotprod";
    case CPU_I8MM:
        return "i8mm";
    case CPU_ARM_BF16:
        return "arm_bf16";
    default:
        return "unknown";
    }
}

void cpu_mask_features(unsigned absent)
{
    pthread_once(&probe_once, probe);
    info.features &= ~absent;
}
