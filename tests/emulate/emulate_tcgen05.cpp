/* What Blackwell's tensor cores do, and their memory (emulate_tcgen05.hpp). */
#include "emulate_tcgen05.hpp"

#include <math.h>
#include <string.h>

#include "async.hpp"

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

/* The descriptor of an operand: "PTX ISA 9.0", table 40. */
static uint32_t operand(uint64_t word, uint32_t swizzle, uint32_t eight_rows)
{
    expect(bits(word, 46, 3) == 1 && bits(word, 49, 4) == 0 && bits(word, 53, 8) == 0,
           "fixed bits of a matrix descriptor");
    expect(bits(word, 61, 3) == swizzle, "the swizzle of a matrix descriptor");
    expect(bits(word, 32, 14) * 16 == eight_rows, "the stride of a matrix descriptor");
    return bits(word, 0, 14) * 16;
}

void put_scales(const work &w, int rank)
{
    uint32_t from = operand(w.a, 0, 128);
    for (uint32_t r = 0; r < 32; r++) {
        const char *row = fenced(rank, from + r / 8 * 128 + r % 8 * 16, 16, w.fenced);
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

static void read_codes(int8_t code[STEP], int rank, uint32_t from, uint32_t r, uint32_t reader)
{
    static const int8_t twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (uint32_t i = 0; i < STEP / 2; i++) {
        uint8_t pair = (uint8_t)*fenced(rank, swizzled(from + r / 8 * 1024 + r % 8 * 128 + i), 1, reader);
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
void multiply(const work &w, int rank)
{
    static thread_local rows a, b;
    int n = columns_of(w), part = n / w.blocks;
    for (int r = 0; r < 128; r++) {
        read_codes(a.code[r], rank, rows_at(w.a), (uint32_t)r, w.fenced);
        read_scales(a.scale[r], rank, w.a_scales, (uint32_t)r);
    }
    for (int c = 0; c < n; c++) {
        read_codes(b.code[c], c / part, rows_at(w.b), (uint32_t)(c % part), w.fenced);
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
