/* What the copy engine and Blackwell's tensor cores do, for blocks that run on a processor. Pieces
 * of work wait in a list, from which a random one that may be done is done whenever threads change
 * places. The order between pieces is that of "PTX ISA 9.0", 9.7.16.6: a product comes behind the
 * scales that its thread put before, and behind that thread's products on the same sums; an arrival
 * behind the scales and products that its thread started, but not behind other arrivals. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <vector>

#include "emulate.hpp"
#include "emulate_async.hpp"
#include "schedule.hpp"
#define _Alignas alignas
extern "C" {
#include "driver/fake_cuda.h"
}

enum { FIRST_ADDRESS = 1024 }; /* of shared memory: none begins at 0 on a card */

enum work_kind { COPY_BOX, COPY_BYTES, PUT_SCALES, MULTIPLY, ARRIVE };

struct work {
    work_kind kind;
    int thread, rank; /* rank: the block in which it is done, the first of `blocks` */
    int blocks;
    bool lazy;                   /* not done before nobody can go on without it */
    uint32_t to, barrier, bytes; /* to: of shared or tensor memory */
    const char *from;
    fake_tensor_map map;
    int x, y;
    uint64_t a, b;
    uint32_t shape, a_scales, b_scales;
    bool add;
};

struct barrier {
    bool made;
    int expected, left, phase;
    int64_t bytes;
};

/* Of a thread. */
struct conduct {
    bool waited; /* and did not fence since */
    bool loaded; /* and did not fence since */
    float *loads[8];
    uint32_t load_from[8];
    int n_loads;
    std::vector<uint32_t> written; /* words of shared memory, and did not fence since */
};

struct block_state {
    barrier barriers[EMULATED_SHARED / 8];
    uint32_t columns[TENSOR_COLUMNS][TENSOR_LANES];
    int allocated;
    uint8_t unfenced[EMULATED_SHARED];
};

struct async_state {
    std::vector<work> list;
    conduct threads[EMULATED_THREADS];
    block_state blocks[EMULATED_BLOCKS];
};

thread_local bool async_used;
static thread_local async_state *state;

static void expect(bool holds, const char *why)
{
    if (!holds) emulated_give_up(why);
}

static conduct &me(void)
{
    return state->threads[emulated.current];
}

/* ---- shared memory ---- */

static void use(void)
{
    if (!state) state = new async_state();
    async_used = true;
}

uint32_t shared_address(const void *p)
{
    use();
    return (uint32_t)((const char *)p - emulated_memory(0)) + FIRST_ADDRESS;
}

static char *at(int rank, uint32_t address, uint32_t bytes)
{
    expect(address >= FIRST_ADDRESS && address - FIRST_ADDRESS + bytes <= EMULATED_SHARED,
           "an address is not in shared memory");
    expect(emulated_runs(rank), "shared memory of a block that has ended");
    return emulated_memory(rank) + (address - FIRST_ADDRESS);
}

/* As the copy engine and tensor cores read. */
static const char *fenced(int rank, uint32_t address, uint32_t bytes)
{
    const char *from = at(rank, address, bytes);
    for (uint32_t i = 0; i < bytes; i++)
        expect(!state->blocks[rank].unfenced[address - FIRST_ADDRESS + i],
               "what a thread wrote is read without its fence_for_copies");
    return from;
}

static void mark(uint32_t word, bool unfenced)
{
    memset(state->blocks[emulated_rank()].unfenced + (word - FIRST_ADDRESS), unfenced, 4);
}

void store_shared_4(uint32_t to, uint32_t value)
{
    memcpy(at(emulated_rank(), to, 4), &value, 4);
    mark(to, true);
    me().written.push_back(to);
}

void fence_for_copies(void)
{
    for (uint32_t word : me().written) mark(word, false);
    me().written.clear();
}

/* ---- barriers ---- */

static barrier &barrier_at(int rank, uint32_t address)
{
    at(rank, address, 8);
    expect(address % 8 == 0, "a barrier's address is no multiple of 8");
    return state->blocks[rank].barriers[(address - FIRST_ADDRESS) / 8];
}

static barrier &made(int rank, uint32_t address)
{
    barrier &b = barrier_at(rank, address);
    expect(b.made, "a barrier is used that was not made");
    return b;
}

void barrier_init(uint32_t address, uint32_t arrivals)
{
    barrier_at(emulated_rank(), address) = {true, (int)arrivals, (int)arrivals, 0, 0};
}

void barrier_init_done(void) {}

static void complete(barrier &b)
{
    if (b.left || b.bytes) return;
    b.left = b.expected;
    b.phase ^= 1;
    emulated_progress();
}

static void arrive(barrier &b)
{
    expect(b.left > 0, "a barrier has more arrivals than it expects");
    b.left--;
    complete(b);
}

static void turn_sometimes(void)
{
    if (emulated_random() % 4 == 0) emulated_yield();
}

static void arrive_at(int rank, uint32_t address)
{
    expect(!me().n_loads, "a thread arrives before its loads from tensor memory are there");
    expect(!me().loaded, "a thread that read tensor memory arrives without tensor_fence_before");
    turn_sometimes();
    arrive(made(rank, address));
}

void barrier_arrive(uint32_t address)
{
    arrive_at(emulated_rank(), address);
}

void barrier_tell(uint32_t address, uint32_t rank)
{
    arrive_at((int)rank, address);
}

void barrier_expect(uint32_t address, uint32_t bytes)
{
    made(emulated_rank(), address).bytes += bytes;
    arrive(made(emulated_rank(), address));
}

void barrier_wait(uint32_t address, uint32_t parity)
{
    while (made(emulated_rank(), address).phase == (int)parity) emulated_yield();
    me().waited = true;
}

void barrier_wait_cluster(uint32_t address, uint32_t parity)
{
    barrier_wait(address, parity);
}

uint32_t cluster_rank(void)
{
    return (uint32_t)emulated_rank();
}

void cluster_sync(void)
{
    emulated_cluster_barrier();
}

/* ---- copies ---- */

static void start(const work &w)
{
    turn_sometimes();
    state->list.push_back(w);
    state->list.back().lazy = emulated_random() % 16 == 0;
    emulated_progress();
}

static work piece(work_kind kind)
{
    work w = {};
    w.kind = kind;
    w.thread = emulated.current;
    w.rank = emulated_rank();
    w.blocks = 1;
    return w;
}

void copy_box_2d(uint32_t to, const tensor_map &map, int x, int y, uint32_t barrier)
{
    work w = piece(COPY_BOX);
    w.to = to, w.x = x, w.y = y, w.barrier = barrier;
    memcpy(&w.map, &map, sizeof w.map);
    expect(w.map.rank == 2 && w.map.swizzle == 3 && to % 1024 == 0,
           "a box has two dimensions, a swizzle of 128 bytes, and comes to a whole kilobyte");
    start(w);
}

static work piece_of_bytes(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    work w = piece(COPY_BYTES);
    w.to = to, w.from = (const char *)from, w.bytes = bytes, w.barrier = barrier;
    expect(to % 16 == 0 && (uintptr_t)from % 16 == 0 && bytes % 16 == 0 && bytes,
           "bytes are copied in pieces of 16 at such addresses");
    return w;
}

void copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    start(piece_of_bytes(to, from, bytes, barrier));
}

/* They need not come at the same time. */
void copy_in_two(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    work w = piece_of_bytes(to, from, bytes, barrier);
    expect(emulated.blocks == 2, "there is a second block");
    for (w.rank = 0; w.rank < 2; w.rank++) start(w);
}

static void bring(int rank, uint32_t address, uint32_t bytes)
{
    made(rank, address).bytes -= bytes;
    complete(made(rank, address));
}

/* An address in rows of 128 bytes, as the swizzle has it. */
static uint32_t swizzled(uint32_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

static void copy_box(const work &w)
{
    const fake_tensor_map &m = w.map;
    uint32_t size = m.element_bytes;
    expect(m.box[0] * size == 128, "rows of a box have 128 bytes");
    for (uint32_t r = 0; r < m.box[1]; r++)
        for (uint32_t i = 0; i < m.box[0]; i++) {
            uint64_t x = (uint64_t)(w.x + (int)i), y = (uint64_t)(w.y + (int)r);
            char *to = at(w.rank, swizzled(w.to + r * 128 + i * size), size);
            if (x < m.sizes[0] && y < m.sizes[1])
                memcpy(to, (const char *)m.data + y * m.strides[0] + x * size, size);
            else
                memset(to, 0, size);
        }
    bring(w.rank, w.barrier, m.box[1] * 128);
}

/* ---- tensor memory ---- */

static block_state &own(void)
{
    return state->blocks[emulated_rank()];
}

void emulated_tensor_alloc(int blocks, uint32_t to, int columns)
{
    const uint32_t address = 0;
    if (threadIdx.x % 32 == 0) {
        expect(blocks == emulated.blocks, "tensor memory is allocated for all blocks at once");
        expect(columns >= 32 && columns <= TENSOR_COLUMNS && !(columns & (columns - 1)),
               "columns of tensor memory are a power of two from 32 to 512");
        expect(!own().allocated, "tensor memory is not free");
        own().allocated = columns;
        memcpy(at(emulated_rank(), to, 4), &address, 4);
    }
    emulated_warp_barrier();
}

uint32_t tensor_address(uint32_t from)
{
    uint32_t address;
    memcpy(&address, at(emulated_rank(), from, 4), 4);
    return address;
}

void emulated_tensor_free(int blocks, uint32_t address, int columns)
{
    emulated_warp_barrier();
    if (threadIdx.x % 32) return;
    expect(blocks == emulated.blocks && address == 0 && columns == own().allocated,
           "what is freed was not allocated");
    own().allocated = 0;
}

static uint32_t *columns_at(int rank, uint32_t address, int columns)
{
    block_state &b = state->blocks[rank];
    expect((int)(address & 0xffff) + columns <= b.allocated,
           "columns of tensor memory that are not allocated");
    return b.columns[address & 0xffff];
}

/* Waiting orders nothing in tensor memory. */
static void ordered(void)
{
    expect(!me().waited, "tensor memory is used behind a wait without tensor_fence_after");
}

void tensor_fence_before(void)
{
    me().loaded = false;
}

void tensor_fence_after(void)
{
    me().waited = false;
}

static void load(float *v, uint32_t from)
{
    uint32_t lane = (from >> 16) + threadIdx.x % 32;
    for (int i = 0; i < 16; i++) memcpy(&v[i], columns_at(emulated_rank(), from + i, 1) + lane, 4);
}

/* Somewhen between here and the wait. */
void tensor_load_16(float (&v)[16], uint32_t from)
{
    conduct &c = me();
    ordered();
    expect(from >> 16 == threadIdx.x / 32 % 4 * 32, "a warp can read a quarter of the lanes");
    for (int i = 0; i < 16; i++) v[i] = NAN;
    expect(c.n_loads < 8, "too many loads to keep");
    c.loads[c.n_loads] = v;
    c.load_from[c.n_loads++] = from;
    if (emulated_random() % 2) load(v, from);
    emulated_yield();
}

/* All loads of the thread. */
void tensor_wait_loads(float (&)[16])
{
    conduct &c = me();
    for (int i = 0; i < c.n_loads; i++) load(c.loads[i], c.load_from[i]);
    if (c.n_loads) c.loaded = true;
    c.n_loads = 0;
}

/* ---- tensor cores ---- */

/* Started by the first block where several work together, done in each. */
static work piece_for(work_kind kind, int blocks)
{
    work w = piece(kind);
    expect(blocks == emulated.blocks && emulated_rank() == 0, "the first block starts it for all");
    w.blocks = blocks;
    return w;
}

void emulated_put_scales(int blocks, uint32_t to, uint64_t atom)
{
    work w = piece_for(PUT_SCALES, blocks);
    ordered();
    w.to = to, w.a = atom;
    start(w);
}

void emulated_multiply(int blocks, uint32_t sums, uint64_t a, uint64_t b, uint32_t shape,
                       uint32_t a_scales, uint32_t b_scales, bool add)
{
    work w = piece_for(MULTIPLY, blocks);
    ordered();
    w.to = sums, w.a = a, w.b = b, w.shape = shape, w.add = add;
    w.a_scales = a_scales, w.b_scales = b_scales;
    start(w);
}

void emulated_tensor_arrive(int blocks, uint32_t barrier)
{
    work w = piece_for(ARRIVE, blocks);
    w.barrier = barrier;
    start(w);
}

static uint32_t bits(uint64_t word, int first, int count)
{
    return (uint32_t)(word >> first & ((1ull << count) - 1));
}

/* The descriptor of an operand: "PTX ISA 9.0", table 40. */
static uint32_t operand(uint64_t word, uint32_t swizzle, uint32_t eight_rows)
{
    expect(bits(word, 46, 3) == 1 && bits(word, 49, 4) == 0 && bits(word, 53, 8) == 0,
           "fixed bits of a matrix descriptor");
    expect(bits(word, 61, 3) == swizzle, "the swizzle of a matrix descriptor");
    expect(bits(word, 32, 14) * 16 == eight_rows, "the stride of a matrix descriptor");
    return bits(word, 0, 14) * 16;
}

static void put_scales(const work &w, int rank)
{
    uint32_t from = operand(w.a, 0, 128);
    for (uint32_t r = 0; r < 32; r++) {
        const char *row = fenced(rank, from + r / 8 * 128 + r % 8 * 16, 16);
        for (uint32_t word = 0; word < 4; word++)
            for (uint32_t quarter = 0; quarter < 4; quarter++)
                memcpy(columns_at(rank, w.to + word, 1) + quarter * 32 + r, row + word * 4, 4);
    }
}

enum { STEP = 64, BLOCK = 16, BLOCKS = STEP / BLOCK };

/* Rows of an operand: values twice, and scales. */
struct rows {
    int8_t code[256][STEP];
    float scale[256][BLOCKS];
};

static float ue4m3(uint32_t code)
{
    if (code & 0x80 || code == 0x7f) return NAN; /* with a sign it is not defined */
    return code < 8 ? ldexpf((float)code, -9) : ldexpf((float)(8 + code % 8), (int)(code / 8) - 10);
}

static void read_codes(int8_t code[STEP], int rank, uint32_t from, uint32_t r)
{
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (uint32_t i = 0; i < STEP / 2; i++) {
        uint8_t pair = (uint8_t)*fenced(rank, swizzled(from + r / 8 * 1024 + r % 8 * 128 + i), 1);
        code[2 * i] = twice[pair % 16];
        code[2 * i + 1] = twice[pair / 16];
    }
}

static void read_scales(float scale[BLOCKS], int rank, uint32_t scales, uint32_t r)
{
    uint32_t word = columns_at(rank, scales + r / 32, 1)[r % 128];
    for (int b = 0; b < BLOCKS; b++) scale[b] = ue4m3(word >> 8 * b & 0xff);
}

static uint32_t rows_at(uint64_t descriptor)
{
    uint32_t from = operand(descriptor, 2, 1024);
    expect(from % 1024 < 128, "rows begin at a swizzled kilobyte");
    return from;
}

/* The instruction descriptor: table 44. */
static int columns_of(const work &w)
{
    int n = (int)bits(w.shape, 17, 6) * 8;
    expect(bits(w.shape, 7, 3) == 1 && bits(w.shape, 10, 2) == 1, "both operands are e2m1");
    expect((int)bits(w.shape, 27, 2) == w.blocks, "M is 128 for each block");
    expect((w.shape & ~(1u << 7 | 1u << 10 | 63u << 17 | 3u << 27)) == 0, "other bits are 0");
    expect(n >= 8 && n <= 256 && n % (8 * w.blocks) == 0, "N is 8 to 256, for two blocks in 16s");
    return n;
}

/* The sums of a block. Its own rows of a; of b it has the scales of all rows, and each block a
 * part of the codes. */
static void multiply(const work &w, int rank)
{
    static thread_local rows a, b;
    int n = columns_of(w), part = n / w.blocks;
    for (int r = 0; r < 128; r++) {
        read_codes(a.code[r], rank, rows_at(w.a), (uint32_t)r);
        read_scales(a.scale[r], rank, w.a_scales, (uint32_t)r);
    }
    for (int c = 0; c < n; c++) {
        read_codes(b.code[c], c / part, rows_at(w.b), (uint32_t)(c % part));
        read_scales(b.scale[c], rank, w.b_scales, (uint32_t)c);
    }
    for (int c = 0; c < n; c++) {
        float *sums = (float *)columns_at(rank, w.to + (uint32_t)c, 1);
        for (int r = 0; r < 128; r++) {
            double sum = w.add ? (double)sums[r] : 0;
            for (int i = 0; i < BLOCKS; i++) {
                int product = 0;
                for (int k = 0; k < BLOCK; k++)
                    product += a.code[r][i * BLOCK + k] * b.code[c][i * BLOCK + k];
                sum += 0.25 * product * (double)a.scale[r][i] * (double)b.scale[c][i];
            }
            sums[r] = (float)sum;
        }
    }
}

/* ---- when ---- */

static bool comes_before(const work &first, const work &then)
{
    if (first.thread != then.thread || then.kind < MULTIPLY) return false;
    if (then.kind == ARRIVE) return first.kind == PUT_SCALES || first.kind == MULTIPLY;
    return first.kind == PUT_SCALES || (first.kind == MULTIPLY && first.to == then.to);
}

static bool may_run(size_t index, bool all_wait)
{
    if (state->list[index].lazy && !all_wait) return false;
    for (size_t i = 0; i < index; i++)
        if (comes_before(state->list[i], state->list[index])) return false;
    return true;
}

static void perform_in(const work &w, int rank)
{
    switch (w.kind) {
    case COPY_BOX:
        return copy_box(w);
    case COPY_BYTES:
        memcpy(at(rank, w.to, w.bytes), w.from, w.bytes);
        return bring(rank, w.barrier, w.bytes);
    case PUT_SCALES:
        return put_scales(w, rank);
    case MULTIPLY:
        return multiply(w, rank);
    case ARRIVE:
        return arrive(made(rank, w.barrier));
    }
}

static void perform(const work &w)
{
    for (int i = 0; i < w.blocks; i++) perform_in(w, w.rank + i);
}

bool async_step(bool all_wait)
{
    if (!async_used || state->list.empty()) return false;
    size_t i = emulated_random() % state->list.size();
    while (i > 0 && !may_run(i, all_wait)) i--;
    if (!may_run(i, all_wait)) return false;
    work w = state->list[i];
    state->list.erase(state->list.begin() + (long)i);
    perform(w);
    emulated_progress();
    return true;
}

void async_begin(void)
{
    async_used = false;
    if (!state) return;
    state->list.clear();
    for (conduct &c : state->threads) c.waited = c.loaded = false, c.n_loads = 0, c.written.clear();
    for (int i = 0; i < emulated.blocks; i++) {
        block_state &b = state->blocks[i];
        for (barrier &each : b.barriers) each.made = false;
        memset(b.columns, 0xff, sizeof b.columns);
        memset(b.unfenced, 0, sizeof b.unfenced);
        b.allocated = 0;
    }
}

/* Arrivals may come when nobody waits any more, but not from one block to another, which may have
 * ended; nothing else may. */
void async_end(void)
{
    if (!async_used) return;
    for (const work &w : state->list)
        expect(w.kind == ARRIVE && w.blocks == 1, "a block ends before what it started is done");
    for (int i = 0; i < emulated.blocks; i++)
        expect(!state->blocks[i].allocated, "a block ends and does not free its tensor memory");
}
