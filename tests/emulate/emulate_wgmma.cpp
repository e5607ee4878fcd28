/* What Hopper's tensor cores do (emulate_wgmma.hpp). A warp's part of a product, 16 rows, is done
 * on its own: after all its lanes have started it, before the wait that covers it, in the order in
 * which the warp started them. Then it reads its fragments and shared memory.
 *
 * Rules of "PTX ISA 9.0", 9.7.15.7 that are checked: the warps of a warpgroup start the same
 * products; registers are not written between a fence and the products that use them (seen from an
 * array's second use on), nor fragments or sums until they are waited for. Sums cannot be seen to
 * be read: they are NaN meanwhile. */
#include "emulate_wgmma.hpp"

#include <string.h>

#include <deque>
#include <vector>

#include "async.hpp"

enum {
    LANES = EMULATED_WARP,
    WARPS = EMULATED_THREADS / LANES,
    WARPGROUP_WARPS = 4,
    SUMS_MAX = 128, /* registers of a thread */
    STEP = 16,      /* of k; of bytes twice as many */
    REGISTER_FILE = 65536,
    POISON = 0x7fc5a5a5, /* a NaN */
};

/* Registers of a lane that products use, and what was in them at its last fence. */
struct known {
    const void *at;
    std::vector<uint32_t> words;
};

/* Of a lane: a product's fragments, as they were when it was started. */
struct fragments {
    const uint32_t *at;
    uint32_t words[4];
    long product;
};

struct lane {
    bool fenced;
    long started, groups; /* products; groups of them */
    std::vector<known> registers;
    std::deque<fragments> reads;
};

/* Sums of a warp that products add to. */
struct sum_set {
    int n; /* registers of a lane */
    float *at[LANES];
    float held[LANES][SUMS_MAX];
    bool back[LANES];
    long last; /* product */
};

/* What all warps of a warpgroup must say. */
struct instruction {
    emulated_product kind;
    bool registers;
    uint64_t a, b;
};

struct product {
    instruction what;
    const uint32_t *a[LANES];
    sum_set *to;
    int lanes; /* that have started it */
    uint32_t fenced;
};

struct warp {
    lane lanes[LANES];
    std::deque<product> products; /* from `first` on */
    long first, done;
    std::deque<sum_set *> sums;
    std::vector<long> groups; /* products before the end of each */
    bool listed;
    int registers; /* of a thread */
};

struct warpgroup {
    std::vector<instruction> started;
};

static thread_local struct tensor_cores {
    warp warps[WARPS];
    warpgroup groups[WARPS / WARPGROUP_WARPS];
    int free_registers[EMULATED_BLOCKS];
} * cores;

static warp &my_warp(void)
{
    if (!cores) cores = new tensor_cores();
    return cores->warps[emulated.current / LANES];
}

static int my_lane(void)
{
    return emulated.current % LANES;
}

/* ---- registers between the warps of a block ---- */

void emulated_registers(int count, bool more)
{
    int most = min(REGISTER_FILE / emulated.count / 8 * 8, 255 / 8 * 8);
    warp &w = my_warp();
    int &free = cores->free_registers[emulated_rank()];
    emulated_warp_barrier();
    if (my_lane() == 0) {
        int had = w.registers ? w.registers : most;
        expect(count % 8 == 0 && count >= 24 && count <= 256,
               "registers of a thread are a multiple of 8 from 24 to 256");
        expect(more ? count >= had : count <= had, "a warp gives what it has not, or takes less");
        while (free < (count - had) * LANES) emulated_yield();
        free -= (count - had) * LANES;
        w.registers = count;
        emulated_progress();
    }
    emulated_warp_barrier();
}

/* ---- descriptors ---- */

/* Of an operand whose k is together: "PTX ISA 9.0", 9.7.15.5.1. Where the first (half 0) or second
 * eight of 16 columns of row r are: in rows of 128 bytes, swizzled, or in matrices of 8 x 8. */
static uint32_t eight_at(uint64_t word, uint32_t r, uint32_t half)
{
    uint32_t from = bits(word, 0, 14) * 16, lead = bits(word, 16, 14) * 16;
    uint32_t stride = bits(word, 32, 14) * 16;
    expect(!bits(word, 14, 2) && !bits(word, 30, 2) && !bits(word, 46, 3) && !bits(word, 49, 13),
           "bits of a matrix descriptor that must be 0");
    expect(bits(word, 62, 2) < 2, "the swizzle of a matrix descriptor");
    expect(stride, "the stride of a matrix descriptor");
    if (!bits(word, 62, 2)) {
        expect(lead && lead % 128 == 0 && stride % 128 == 0, "the distances between matrices");
        return from + r / 8 * stride + half * lead + r % 8 * 16;
    }
    expect(lead == 16, "the leading distance of a matrix descriptor");
    expect(stride % 1024 == 0 && from % 1024 < 128, "rows begin at a swizzled kilobyte");
    return swizzled(from + r / 8 * stride + r % 8 * 128 + half * 16);
}

static float number(bool bf16, uint16_t half)
{
    return bf16 ? __uint_as_float((uint32_t)half << 16) : f16_to_f32(half);
}

/* Of one whose k is apart ("PTX ISA 9.0", 9.7.15.5.1): row k, columns c to c + 7 of it, which are
 * rows of 128 bytes, swizzled: 8 of them in `stride` bytes, `lead` bytes to the next 64 columns. */
static uint32_t transposed_eight_at(uint64_t word, uint32_t k, uint32_t c)
{
    uint32_t from = bits(word, 0, 14) * 16, lead = bits(word, 16, 14) * 16;
    uint32_t stride = bits(word, 32, 14) * 16;
    expect(!bits(word, 14, 2) && !bits(word, 30, 2) && !bits(word, 46, 3) && !bits(word, 49, 13),
           "bits of a matrix descriptor that must be 0");
    expect(bits(word, 62, 2) == 1, "the swizzle of a transposed matrix descriptor");
    expect(from % 1024 == 0 && stride % 1024 == 0 && stride, "rows begin at a swizzled kilobyte");
    expect(c < 64 || (lead % 1024 == 0 && lead), "the leading distance of a matrix descriptor");
    return swizzled(from + c / 64 * lead + k / 8 * stride + k % 8 * 128 + c % 64 * 2);
}

/* 16 columns of row r. */
static void read_row(float *to, const product &p, int rank, uint64_t operand, uint32_t r)
{
    uint16_t halves[STEP];
    for (uint32_t i = 0; i < 2; i++)
        memcpy(halves + 8 * i, fenced(rank, eight_at(operand, r, i), 16, p.fenced), 16);
    for (int k = 0; k < STEP; k++) to[k] = number(p.what.kind.bf16, halves[k]);
}

static void read_transposed(float b[STEP][2 * SUMS_MAX], const product &p, int rank)
{
    uint16_t halves[8];
    for (int k = 0; k < STEP; k++)
        for (int c = 0; c < p.what.kind.n; c += 8) {
            uint32_t from = transposed_eight_at(p.what.b, (uint32_t)k, (uint32_t)c);
            memcpy(halves, fenced(rank, from, 16, p.fenced), 16);
            for (int i = 0; i < 8; i++) b[k][c + i] = number(p.what.kind.bf16, halves[i]);
        }
}

/* 16 rows from `first` on of an operand of 64 whose k is apart. */
static void read_transposed_rows(float a[16][STEP], const product &p, int rank, uint32_t first)
{
    uint16_t halves[8];
    for (uint32_t k = 0; k < STEP; k++)
        for (uint32_t r = 0; r < 16; r += 8) {
            uint32_t from = transposed_eight_at(p.what.a, k, first + r);
            memcpy(halves, fenced(rank, from, 16, p.fenced), 16);
            for (uint32_t i = 0; i < 8; i++) a[r + i][k] = number(p.what.kind.bf16, halves[i]);
        }
}

/* ---- a product ---- */

static void read_fragments(float a[16][STEP], const product &p)
{
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++)
                a[l / 4 + i % 2 * 8][l % 4 * 2 + i / 2 * 8 + half] =
                    number(p.what.kind.bf16, (uint16_t)(p.a[l][i] >> 16 * half));
}

/* Sums in double, rounded once. */
static void add_row(const product &p, int r, const float a[STEP], const float (*b)[2 * SUMS_MAX])
{
    double sum[2 * SUMS_MAX];
    int n = p.what.kind.n;
    for (int c = 0; c < n; c++)
        sum[c] = p.what.kind.adds
                     ? (double)p.to->held[r % 8 * 4 + c % 8 / 2][c / 8 * 4 + r / 8 * 2 + c % 2]
                     : 0;
    for (int k = 0; k < STEP; k++)
        for (int c = 0; c < n; c++) sum[c] += (double)a[k] * (double)b[k][c];
    for (int c = 0; c < n; c++)
        p.to->held[r % 8 * 4 + c % 8 / 2][c / 8 * 4 + r / 8 * 2 + c % 2] = (float)sum[c];
}

/* Bytes: a's unsigned, b's signed; sums wrap around. */
static void multiply_i8(const product &p, int rank)
{
    static thread_local int8_t b[2 * SUMS_MAX][2 * STEP];
    for (int c = 0; c < p.what.kind.n; c++)
        for (uint32_t i = 0; i < 2; i++)
            memcpy(b[c] + 16 * i,
                   fenced(rank, eight_at(p.what.b, (uint32_t)c, i), 16, p.fenced), 16);
    for (int l = 0; l < LANES; l++)
        for (int s = 0; s < p.what.kind.n / 2; s++) {
            int row = l / 4 + s % 4 / 2 * 8, c = s / 4 * 8 + l % 4 * 2 + s % 2;
            uint32_t sum = __float_as_uint(p.to->held[l][s]);
            for (int k = 0; k < 2 * STEP; k++) {
                uint32_t word = p.a[row % 8 * 4 + k % 16 / 4][k / 16 * 2 + row / 8];
                sum += (word >> 8 * (k % 4) & 255) * (uint32_t)(int32_t)b[c][k];
            }
            p.to->held[l][s] = __uint_as_float(sum);
        }
}

static void multiply(const product &p, int index)
{
    static thread_local float a[16][STEP], b[STEP][2 * SUMS_MAX];
    int rank = index * LANES / emulated.count;
    if (p.what.kind.i8) {
        multiply_i8(p, rank);
        return;
    }
    if (p.what.kind.transposed) read_transposed(b, p, rank);
    for (int c = 0; c < p.what.kind.n && !p.what.kind.transposed; c++) {
        float row[STEP];
        read_row(row, p, rank, p.what.b, (uint32_t)c);
        for (int k = 0; k < STEP; k++) b[k][c] = row[k];
    }
    if (p.what.registers)
        read_fragments(a, p);
    else if (p.what.kind.transposed_a)
        read_transposed_rows(a, p, rank, (uint32_t)index % WARPGROUP_WARPS * 16);
    else
        for (uint32_t r = 0; r < 16; r++)
            read_row(a[r], p, rank, p.what.a, (uint32_t)index % WARPGROUP_WARPS * 16 + r);
    for (int r = 0; r < 16; r++) add_row(p, r, a[r], b);
}

bool product_ready(int index)
{
    const warp &w = cores->warps[index];
    size_t next = (size_t)(w.done - w.first);
    return next < w.products.size() && w.products[next].lanes == LANES;
}

void product_step(int index)
{
    warp &w = cores->warps[index];
    multiply(w.products[(size_t)(w.done - w.first)], index);
    w.done++;
}

void product_unlisted(int index)
{
    cores->warps[index].listed = false;
}

/* ---- what a lane does ---- */

static known *find(lane &l, const void *at)
{
    for (known &k : l.registers)
        if (k.at == at) return &k;
    return NULL;
}

/* Registers as they are now need no fence. */
static void settle(lane &l, const void *at, int words)
{
    known *k = find(l, at);
    if (!k) {
        l.registers.push_back({at, {}});
        k = &l.registers.back();
    }
    k->words.resize((size_t)words);
    memcpy(k->words.data(), at, (size_t)words * 4);
}

static void check_fence(lane &l, const void *at, int words)
{
    expect(l.fenced, "the first product comes before wgmma_fence");
    const known *k = find(l, at);
    size_t count = k ? min(k->words.size(), (size_t)words) : 0;
    expect(!k || !memcmp(k->words.data(), at, count * 4),
           "registers of a product are written behind wgmma_fence");
}

void wgmma_fence(void)
{
    lane &l = my_warp().lanes[my_lane()];
    emulated_warp_barrier();
    l.fenced = true;
    for (known &k : l.registers) memcpy(k.words.data(), k.at, k.words.size() * 4);
}

/* The sums at d, NaN until they are waited for. */
static void take_sums(warp &w, product &p, float *d)
{
    lane &l = w.lanes[my_lane()];
    sum_set *&to = p.to;
    for (sum_set *s : w.sums) {
        float *other = s->at[my_lane()];
        if (!other) continue;
        if (other == d && !s->back[my_lane()]) {
            expect(!to || to == s, "lanes add to different sums");
            expect(s->n == p.what.kind.n / 2, "sums of another shape are not waited for");
            to = s;
        } else {
            expect(s->back[my_lane()] || other + s->n <= d || d + p.what.kind.n / 2 <= other,
                   "sums overlap others that are not waited for");
        }
    }
    if (!to) {
        w.sums.push_back(to = new sum_set());
        to->n = p.what.kind.n / 2;
    }
    if (to->at[my_lane()]) return;
    check_fence(l, d, to->n);
    settle(l, d, to->n);
    to->at[my_lane()] = d;
    memcpy(to->held[my_lane()], d, (size_t)to->n * 4);
    for (int i = 0; i < to->n; i++) d[i] = __uint_as_float(POISON);
}

static void say_same(const instruction &what)
{
    warpgroup &g = cores->groups[emulated.current / (WARPGROUP_WARPS * LANES)];
    size_t index = (size_t)my_warp().lanes[my_lane()].started;
    if (index == g.started.size()) g.started.push_back(what);
    const instruction &same = g.started[index];
    expect(same.kind.n == what.kind.n && same.kind.bf16 == what.kind.bf16 &&
               same.kind.transposed == what.kind.transposed && same.kind.adds == what.kind.adds &&
               same.kind.transposed_a == what.kind.transposed_a && same.kind.i8 == what.kind.i8 &&
               same.registers == what.registers && same.a == what.a && same.b == what.b,
           "the warps of a warpgroup start different products");
}

void emulated_wgmma(const emulated_product &kind, float *d, const uint32_t *a, uint64_t a_operand,
                    uint64_t b)
{
    warp &w = my_warp();
    lane &l = w.lanes[my_lane()];
    emulated_warp_barrier();
    say_same({kind, a != NULL, a_operand, b});
    if (l.started == w.first + (long)w.products.size()) {
        w.products.push_back({});
        w.products.back().what = {kind, a != NULL, a_operand, b};
        w.products.back().fenced = me().fenced;
    }
    product &p = w.products[(size_t)(l.started - w.first)];
    p.fenced = min(p.fenced, me().fenced);
    take_sums(w, p, d);
    p.to->last = l.started;
    if (a) {
        check_fence(l, a, 4);
        settle(l, a, 4);
        p.a[my_lane()] = a;
        l.reads.push_back({a, {a[0], a[1], a[2], a[3]}, l.started});
    }
    l.started++;
    if (++p.lanes == LANES && !w.listed && product_ready(emulated.current / LANES)) {
        w.listed = true;
        start_own(true, emulated.current / LANES);
    }
}

void wgmma_commit(void)
{
    warp &w = my_warp();
    lane &l = w.lanes[my_lane()];
    if (l.groups == (long)w.groups.size()) w.groups.push_back(l.started);
    expect(w.groups[(size_t)l.groups++] == l.started, "lanes make different groups");
}

/* ---- waiting ---- */

static void check_reads(lane &l, long products)
{
    while (!l.reads.empty() && l.reads.front().product < products) {
        const fragments &f = l.reads.front();
        expect(!memcmp(f.at, f.words, sizeof f.words),
               "fragments are written before their product is waited for");
        l.reads.pop_front();
    }
}

/* Results of the first `products` of them that no later one adds to. */
static void give_sums(warp &w, lane &l, long products)
{
    for (size_t i = 0; i < w.sums.size(); i++) {
        sum_set *s = w.sums[i];
        if (s->last >= products || s->back[my_lane()]) continue;
        float *d = s->at[my_lane()];
        for (int j = 0; j < s->n; j++)
            expect(__float_as_uint(d[j]) == POISON, "sums are written before they are waited for");
        memcpy(d, s->held[my_lane()], (size_t)s->n * 4);
        settle(l, d, s->n);
        s->back[my_lane()] = true;
    }
}

/* By the last lane. */
static void forget_done(warp &w, long products)
{
    while (!w.sums.empty() && w.sums.front()->last < products) {
        for (bool back : w.sums.front()->back)
            if (!back) return;
        delete w.sums.front();
        w.sums.pop_front();
    }
    for (const lane &l : w.lanes)
        if (!l.reads.empty() && l.reads.front().product < products) return;
    while (w.first < products) w.products.pop_front(), w.first++;
}

void emulated_wgmma_wait(int left)
{
    warp &w = my_warp();
    lane &l = w.lanes[my_lane()];
    int index = emulated.current / LANES;
    long products = l.groups > left ? w.groups[(size_t)(l.groups - left - 1)] : 0;
    emulated_warp_barrier();
    while (w.done < products)
        if (emulated_random() % 4 == 0 && product_ready(index))
            product_step(index), emulated_progress();
        else
            emulated_yield();
    check_reads(l, products);
    give_sums(w, l, products);
    emulated_warp_barrier();
    if (my_lane() == 0) forget_done(w, products);
}

/* ---- blocks ---- */

void wgmma_begin(void)
{
    if (!cores) return;
    for (warp &w : cores->warps) {
        for (sum_set *s : w.sums) delete s;
        w = {};
    }
    for (warpgroup &g : cores->groups) g.started.clear();
    memset(cores->free_registers, 0, sizeof cores->free_registers);
}

void wgmma_end(void)
{
    if (!cores) return;
    for (int i = 0; i < emulated.count * emulated.blocks / LANES; i++) {
        const warp &w = cores->warps[i];
        expect(w.sums.empty() && w.done == w.lanes[0].started,
               "a block ends before its products are waited for");
        expect(w.registers == cores->warps[i / WARPGROUP_WARPS * WARPGROUP_WARPS].registers,
               "the warps of a warpgroup have different numbers of registers");
    }
}
