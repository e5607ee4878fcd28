/* What is done behind the backs of threads, for blocks that run on a processor: copies; tensor
 * cores are in files of their own. Pieces of work wait in a list, from which a random one that may
 * be done is done whenever threads change places. The order between pieces is that of "PTX
 * ISA 9.0", 9.7.16.6: a product comes behind the scales that its thread put before, and behind that
 * thread's products on the same sums; an arrival behind the scales and products that its thread
 * started, but not behind other arrivals. What has an order of its own, a thread's copies of single
 * words and a warp's products on Hopper, waits elsewhere, the next one of each at a time. */
#include "emulate_async.hpp"

#include <stdio.h>
#include <string.h>

#include <mutex>

#include "async.hpp"

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

char *at(int rank, uint32_t address, uint32_t bytes)
{
    expect(address >= FIRST_ADDRESS && address - FIRST_ADDRESS + bytes <= EMULATED_SHARED,
           "an address is not in shared memory");
    expect(emulated_runs(rank), "shared memory of a block that has ended");
    return emulated_memory(rank) + (address - FIRST_ADDRESS);
}

static writer *writers_at(int rank, uint32_t address)
{
    return &state->blocks[rank].writers[(address - FIRST_ADDRESS) / 4];
}

const char *fenced(int rank, uint32_t address, uint32_t bytes, uint32_t reader)
{
    const char *from = at(rank, address, bytes);
    for (uint32_t i = 0; i < bytes; i += 4) {
        const writer &w = *writers_at(rank, address + i);
        expect(w.when <= reader || w.when <= state->threads[w.thread].fenced,
               "what a thread wrote is read without its fence_for_copies");
    }
    return from;
}

void mark(int thread, uint32_t address, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 4)
        *writers_at(thread / emulated.count, address + i) = {thread, state->clock + 1};
    state->clock++;
}

/* A copy is there, which needs no fence. */
static void put(int rank, uint32_t address, const void *from, uint32_t bytes)
{
    char *to = at(rank, address, bytes);
    if (from)
        memcpy(to, from, bytes);
    else
        memset(to, 0, bytes);
    for (uint32_t i = 0; i < bytes; i += 4) writers_at(rank, address + i)->when = 0;
}

void store_shared_4(uint32_t to, uint32_t value)
{
    memcpy(at(emulated_rank(), to, 4), &value, 4);
    mark(emulated.current, to, 4);
}

void store_shared_16(uint32_t to, float x, float y, float z, float w)
{
    const float all[4] = {x, y, z, w};
    expect(to % sizeof all == 0, "an address is no multiple of what is stored");
    memcpy(at(emulated_rank(), to, sizeof all), all, sizeof all);
    mark(emulated.current, to, sizeof all);
}

void emulated_load_shared(void *to, uint32_t from, uint32_t bytes)
{
    expect(from % bytes == 0, "an address is no multiple of what is loaded");
    memcpy(to, at(emulated_rank(), from, bytes), bytes);
}

void emulated_stmatrix(uint32_t to, const uint32_t (&m)[4], bool transposed)
{
    uint32_t lane = threadIdx.x % 32;
    emulated_words &mine = emulated_next();
    mine.at[0] = to;
    memcpy(&mine.at[1], m, sizeof m);
    emulated_warp_barrier();
    const emulated_words *lanes = emulated_lanes();
    uint32_t matrix = lane / 8, row = lane % 8; /* this lane's */
    expect(to % 16 == 0, "a matrix's row is no multiple of 16 bytes");
    for (uint32_t c = 0; c < 8; c++) {
        uint32_t owner = transposed ? c * 4 + row / 2 : row * 4 + c / 2, words[4];
        memcpy(words, &lanes[owner].at[1], sizeof words);
        uint16_t half = (uint16_t)(words[matrix] >> 16 * ((transposed ? row : c) % 2));
        memcpy(at(emulated_rank(), to + 2 * c, 2), &half, 2);
    }
    mark(emulated.current, to, 16);
}

uint32_t emulated_movmatrix(uint32_t m)
{
    const uint32_t lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
    emulated_next().at[0] = m;
    emulated_warp_barrier();
    const emulated_words *lanes = emulated_lanes();
    uint32_t turned = 0;
    for (uint32_t i = 0; i < 2; i++)
        turned |= (lanes[(column + i) * 4 + row / 2].at[0] >> 16 * (row % 2) & 0xffff) << 16 * i;
    return turned;
}

void fence_for_copies(void)
{
    me().fenced = ++state->clock;
}

/* ---- global memory ---- */

void emulated_global_write(const void *to, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 16)
        state->global[((uintptr_t)to + i) / 16] = {emulated.current, state->clock + 1};
    state->clock++;
}

void fence_for_bulk_copies(void)
{
    fence_for_copies();
    me().fenced_all = state->clock;
}

/* As the copy engine reads. */
static const char *global_fenced(const work &w)
{
    for (uint32_t i = 0; i < w.bytes && !state->global.empty(); i += 16) {
        auto found = state->global.find(((uintptr_t)w.from + i) / 16);
        if (found == state->global.end()) continue;
        const writer &by = found->second;
        expect(by.when <= w.fenced_all || by.when <= state->threads[by.thread].fenced_all,
               "what a thread wrote to global memory is copied without fence_for_bulk_copies");
    }
    return w.from;
}

/* Words that blocks wait for: others have turns in between. */
void word_add(uint32_t *word, uint32_t add)
{
    turn_sometimes();
    *word += add;
    emulated_progress();
}

void word_set_1(uint32_t *word)
{
    turn_sometimes();
    *word = 1;
    emulated_progress();
}

uint32_t word_take(const uint32_t *word)
{
    emulated_yield();
    return *(const volatile uint32_t *)word;
}

/* Blocks in other threads of the host take as long as they take. */
void turn_wait(const uint32_t *word, uint32_t value)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
        emulated_progress();
        emulated_yield();
    }
    me().fenced_all = ++state->clock;
}

void turn_set(uint32_t *word, uint32_t value)
{
    turn_sometimes();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    emulated_progress();
}

/* ---- barriers ---- */

static barrier &barrier_at(int rank, uint32_t address)
{
    at(rank, address, 8);
    expect(address % 8 == 0, "a barrier's address is no multiple of 8");
    return state->blocks[rank].barriers[(address - FIRST_ADDRESS) / 8];
}

barrier &made(int rank, uint32_t address)
{
    barrier &b = barrier_at(rank, address);
    expect(b.made, "a barrier is used that was not made");
    return b;
}

void barrier_init(uint32_t address, uint32_t arrivals)
{
    barrier_at(emulated_rank(), address) = {true, (int)arrivals, (int)arrivals, 0, 0, 0};
}

void barrier_init_done(void) {}

static void complete(barrier &b)
{
    if (b.left || b.bytes) return;
    b.left = b.expected;
    b.phase ^= 1;
    emulated_wake(&b.sleepers);
}

void arrive(barrier &b)
{
    expect(b.left > 0, "a barrier has more arrivals than it expects");
    b.left--;
    complete(b);
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

void barrier_arrive_at(uint32_t address, uint32_t rank)
{
    arrive_at((int)rank, address);
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
    barrier &b = made(emulated_rank(), address);
    turn_sometimes();
    while (b.phase == (int)parity) emulated_sleep(&b.sleepers);
    me().waited = true;
}

void barrier_wait_cluster(uint32_t address, uint32_t parity)
{
    barrier_wait(address, parity);
}

static void all_named(named_barrier &b)
{
    b.said = b.any;
    b.any = false;
    b.arrived = 0;
    b.times++;
    emulated_wake(&b.sleepers);
}

/* Whole warps count, and those who wait for the same number say the same count. Whether one of them
 * said so. */
static bool named(int number, int threads, bool mine, bool waits)
{
    expect(number >= 1 && number < 16 && threads % EMULATED_WARP == 0 && threads <= emulated.count,
           "a named barrier's number is 1 to 15, its count whole warps of the block");
    emulated_warp_barrier();
    named_barrier &b = state->blocks[emulated_rank()].named[number];
    expect(!b.arrived || b.threads == threads, "a named barrier is given two counts");
    long now = b.times;
    b.threads = threads;
    b.any |= mine;
    if (++b.arrived == threads) all_named(b);
    while (waits && b.times == now) emulated_sleep(&b.sleepers);
    return b.said;
}

void named_sync(int number, int threads)
{
    named(number, threads, false, true);
}

void named_arrive(int number, int threads)
{
    named(number, threads, false, false);
}

bool named_any(int number, bool mine)
{
    return named(number, 128, mine, true);
}

uint32_t cluster_rank(void)
{
    return (uint32_t)emulated_cluster_rank();
}

void cluster_sync(void)
{
    emulated_cluster_barrier();
}

/* Who arrives goes on; that is not emulated, so that what needs the wait is seen to miss it. */
void cluster_arrive(void)
{
    turn_sometimes();
}

void cluster_wait(void)
{
    emulated_cluster_barrier();
}

/* ---- copies ---- */

void start(const work &w)
{
    turn_sometimes();
    state->list.push_back(w);
    state->list.back().lazy = emulated_random() % 16 == 0;
    emulated_progress();
}

work piece(work_kind kind)
{
    work w = {};
    w.kind = kind;
    w.thread = emulated.current;
    w.rank = emulated_rank();
    w.blocks = 1;
    w.fenced = me().fenced;
    w.fenced_all = me().fenced_all;
    return w;
}

static work piece_of_box(uint32_t to, const tensor_map &map, uint32_t barrier)
{
    work w = piece(COPY_BOX);
    w.to = to, w.barrier = barrier;
    memcpy(&w.map, &map, sizeof w.map);
    return w;
}

void copy_box_2d(uint32_t to, const tensor_map &map, int x, int y, uint32_t barrier)
{
    work w = piece_of_box(to, map, barrier);
    expect(w.map.rank == 2, "the map has two dimensions");
    w.at[0] = x, w.at[1] = y;
    start(w);
}

void copy_box_3d(uint32_t to, const tensor_map &map, int x, int y, int z, uint32_t barrier)
{
    work w = piece_of_box(to, map, barrier);
    expect(w.map.rank == 3, "the map has three dimensions");
    w.at[0] = x, w.at[1] = y, w.at[2] = z;
    start(w);
}

void copy_box_4d(uint32_t to, const tensor_map &map, int x, int y, int z, int v, uint32_t barrier)
{
    work w = piece_of_box(to, map, barrier);
    expect(w.map.rank == 4, "the map has four dimensions");
    w.at[0] = x, w.at[1] = y, w.at[2] = z, w.at[3] = v;
    start(w);
}

void copy_box_5d(uint32_t to, const tensor_map &map, int x, int v, uint32_t barrier)
{
    work w = piece_of_box(to, map, barrier);
    expect(w.map.rank == 5, "the map has five dimensions");
    w.at[0] = x, w.at[4] = v;
    start(w);
}

/* They need not come at the same time. */
static void start_for(work w, uint16_t blocks)
{
    expect(blocks >> emulated.blocks == 0, "copies go to blocks of the cluster");
    for (w.rank = 0; w.rank < emulated.blocks; w.rank++)
        if (blocks >> w.rank & 1) start(w);
}

void copy_box_2d_to(uint32_t to, const tensor_map &map, int x, int y, uint32_t barrier,
                    uint16_t blocks)
{
    work w = piece_of_box(to, map, barrier);
    expect(w.map.rank == 2, "the map has two dimensions");
    w.at[0] = x, w.at[1] = y;
    start_for(w, blocks);
}

void copy_box_3d_to(uint32_t to, const tensor_map &map, int x, int y, int z, uint32_t barrier,
                    uint16_t blocks)
{
    work w = piece_of_box(to, map, barrier);
    expect(w.map.rank == 3, "the map has three dimensions");
    w.at[0] = x, w.at[1] = y, w.at[2] = z;
    start_for(w, blocks);
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

void copy_across(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier, uint32_t rank)
{
    work w = piece(COPY_ACROSS);
    w.to = to, w.source = from, w.bytes = bytes, w.barrier = barrier, w.rank = (int)rank;
    expect(to % 16 == 0 && from % 16 == 0 && bytes % 16 == 0 && bytes,
           "bytes are copied in pieces of 16 at such addresses");
    expect((int)rank < emulated.blocks, "there is no such block in the cluster");
    start(w);
}

static void bring(int rank, uint32_t address, uint32_t bytes)
{
    made(rank, address).bytes -= bytes;
    complete(made(rank, address));
}

void put_across(uint32_t to, float value, uint32_t barrier, uint32_t rank)
{
    expect(to % sizeof value == 0, "an address is no multiple of what is stored");
    expect((int)rank < emulated.blocks, "there is no such block in the cluster");
    made((int)rank, barrier);
    turn_sometimes();
    state->puts.push_back({(int)rank, to, barrier, value});
    emulated_progress();
}

void put_four_across(uint32_t to, const float *four, uint32_t barrier, uint32_t rank)
{
    expect(to % (4 * sizeof *four) == 0, "an address is no multiple of what is stored");
    for (int i = 0; i < 4; i++) put_across(to + i * (uint32_t)sizeof *four, four[i], barrier, rank);
}

/* One of the words, whichever. */
static void put_step(size_t i)
{
    const word_put p = state->puts[i];
    state->puts[i] = state->puts.back();
    state->puts.pop_back();
    put(p.rank, p.to, (const char *)&p.value, sizeof p.value);
    bring(p.rank, p.barrier, sizeof p.value);
    emulated_progress();
}

/* Where row `r` of a box comes from, of all but the innermost dimension; NULL: outside. */
static const char *row_of(const work &w, uint32_t r)
{
    const char *from = (const char *)w.map.data;
    for (uint32_t d = 1; d < w.map.rank; r /= w.map.box[d++]) {
        uint64_t i = (uint64_t)(w.at[d] + (int)(r % w.map.box[d]));
        if (i >= w.map.sizes[d]) return NULL;
        from += i * w.map.strides[d - 1];
    }
    return from;
}

static void copy_box(const work &w)
{
    const fake_tensor_map &m = w.map;
    uint32_t size = m.element_bytes, row = m.box[0] * size, rows = 1;
    for (uint32_t d = 1; d < m.rank; d++) rows *= m.box[d];
    expect(m.swizzle == 3 ? row == 128 && w.to % 1024 == 0 : m.swizzle == 0 && w.to % 128 == 0,
           "a box is swizzled in rows of 128 bytes at a whole kilobyte, or not and at 128 bytes");
    for (uint32_t r = 0; r < rows; r++) {
        const char *from = row_of(w, r);
        for (uint32_t i = 0; i < m.box[0]; i++) {
            uint64_t x = (uint64_t)(w.at[0] + (int)i);
            uint32_t to = w.to + r * row + i * size;
            put(w.rank, m.swizzle ? swizzled(to) : to,
                from && x < m.sizes[0] ? from + x * size : NULL, size);
        }
    }
    bring(w.rank, w.barrier, rows * row);
}

/* ---- out of shared memory ---- */

static void leave(work_kind kind, void *to, uint32_t from, uint32_t bytes)
{
    work w = piece(kind);
    w.out = (char *)to, w.to = from, w.bytes = bytes;
    expect(from % 16 == 0 && (uintptr_t)to % 16 == 0 && bytes % 16 == 0 && bytes,
           "bytes are copied in pieces of 16 at such addresses");
    me().leaving++;
    me().open++;
    start(w);
}

void copy_out(void *to, uint32_t from, uint32_t bytes)
{
    leave(COPY_OUT, to, from, bytes);
}

void add_out(void *to, uint32_t from, uint32_t bytes)
{
    leave(ADD_OUT, to, from, bytes);
}

/* Row by row, in pieces of 16 bytes. */
void copy_box_out_2d(const tensor_map &map, int x, int y, uint32_t from)
{
    fake_tensor_map m;
    memcpy(&m, &map, sizeof m);
    const uint32_t row = m.box[0] * m.element_bytes, turns = m.swizzle == 3 ? 7 : 3;
    expect(m.rank == 2, "the map has two dimensions");
    expect((m.swizzle == 3 && row == 128) || (m.swizzle == 2 && row == 64), "a box out has swizzled rows of 64 or 128 bytes");
    expect(from % ((turns + 1) * 128) == 0, "a box out begins where its swizzle does");
    for (uint32_t r = 0; r < m.box[1] && (uint64_t)y + r < m.sizes[1]; r++)
        for (uint32_t i = 0; i < row; i += 16) {
            const uint64_t column = (uint64_t)x + i / m.element_bytes;
            const uint32_t at = from + r * row + i;
            if (column >= m.sizes[0]) continue;
            leave(COPY_OUT, (char *)m.data + ((uint64_t)y + r) * m.strides[0] + column * m.element_bytes,
                  at ^ (at >> 7 & turns) << 4, 16);
        }
}

void copy_out_commit(void)
{
    me().open = 0;
}

void copy_out_read(void)
{
    turn_sometimes();
    while (me().leaving > me().open) emulated_sleep(&me().sleepers);
}

void copy_out_done(void)
{
    copy_out_read();
}

/* Blocks that other threads of the host have add there too. */
static std::mutex adding;

static void go_out(const work &w)
{
    std::lock_guard<std::mutex> alone(adding);
    const char *from = fenced(w.rank, w.to, w.bytes, w.fenced);
    if (w.kind == COPY_OUT) memcpy(w.out, from, w.bytes);
    for (uint32_t i = 0; w.kind == ADD_OUT && i < w.bytes; i += 4) {
        float sum, more;
        memcpy(&sum, w.out + i, 4);
        memcpy(&more, from + i, 4);
        sum += more;
        memcpy(w.out + i, &sum, 4);
    }
    conduct &c = state->threads[w.thread];
    if (--c.leaving <= c.open) emulated_wake(&c.sleepers);
}

/* ---- copies of single words ---- */

static void copy_words(int thread, const word_copy &c)
{
    put(thread / emulated.count, c.to, c.from, c.bytes);
    mark(thread, c.to, c.bytes); /* as if the thread had written them */
}

void emulated_copy(uint32_t to, const void *from, uint32_t bytes, bool valid)
{
    expect(to % bytes == 0 && (uintptr_t)from % bytes == 0,
           "an address is no multiple of what is copied");
    word_copy c = {to, bytes, valid ? (const char *)from : NULL};
    at(emulated_rank(), to, bytes);
    if (emulated_random() % 2)
        copy_words(emulated.current, c);
    else
        me().copies.push_back(c);
}

void start_own(bool products, int owner)
{
    state->own.push_back({products, owner, emulated_random() % 16 == 0});
    emulated_progress();
}

static void start_batch(uint32_t barrier)
{
    conduct &c = me();
    turn_sometimes();
    c.batches.push_back({std::move(c.copies), barrier});
    c.copies.clear();
    if (c.batches.size() == 1) start_own(false, emulated.current);
}

void barrier_arrive_copied(uint32_t address)
{
    made(emulated_rank(), address);
    start_batch(address);
}

void copy_commit(void)
{
    me().groups++;
    start_batch(0);
}

void emulated_copy_wait(int left)
{
    turn_sometimes();
    while (me().groups > left) emulated_sleep(&me().sleepers);
}

/* The next batch of a thread. */
static void batch_step(int thread)
{
    conduct &c = state->threads[thread];
    copy_batch batch = std::move(c.batches.front());
    c.batches.pop_front();
    for (const word_copy &each : batch.pieces) copy_words(thread, each);
    if (batch.barrier) {
        arrive(made(thread / emulated.count, batch.barrier));
    } else {
        c.groups--;
        emulated_wake(&c.sleepers);
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
        put(rank, w.to, global_fenced(w), w.bytes);
        return bring(rank, w.barrier, w.bytes);
    case COPY_ACROSS:
        put(rank, w.to, fenced(w.thread / emulated.count, w.source, w.bytes, w.fenced), w.bytes);
        return bring(rank, w.barrier, w.bytes);
    case COPY_OUT:
    case ADD_OUT:
        return go_out(w);
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

static bool own_ready(const own_work &o)
{
    return o.products ? product_ready(o.owner) : !state->threads[o.owner].batches.empty();
}

/* The next piece of a thread's or a warp's own work. */
static bool own_step(size_t i, bool all_wait)
{
    own_work o = state->own[i];
    if (o.lazy && !all_wait) return false;
    if (o.products && own_ready(o)) product_step(o.owner);
    if (!o.products) batch_step(o.owner);
    if (own_ready(o)) {
        state->own[i].lazy = emulated_random() % 16 == 0;
    } else {
        state->own[i] = state->own.back();
        state->own.pop_back();
        if (o.products) product_unlisted(o.owner);
    }
    emulated_progress();
    return true;
}

bool async_step(bool all_wait)
{
    if (!async_used || state->list.size() + state->own.size() + state->puts.size() == 0) return false;
    size_t i = emulated_random() % (state->list.size() + state->own.size() + state->puts.size());
    if (i < state->puts.size()) {
        put_step(i);
        return true;
    }
    i -= state->puts.size();
    if (i < state->own.size()) return own_step(i, all_wait);
    i -= state->own.size();
    while (i > 0 && !may_run(i, all_wait)) i--;
    if (!may_run(i, all_wait)) return false;
    work w = state->list[i];
    state->list.erase(state->list.begin() + (long)i);
    perform(w);
    emulated_progress();
    return true;
}

static void forget(block_state &b)
{
    memset(b.barriers, 0, sizeof b.barriers);
    memset(b.named, 0, sizeof b.named);
    memset(b.columns, 0xff, sizeof b.columns);
    memset(b.writers, 0, sizeof b.writers);
    b.allocated = 0;
}

void async_begin(void)
{
    async_used = false;
    if (!state) return;
    state->list.clear();
    state->own.clear();
    state->puts.clear();
    state->global.clear();
    state->clock = 0;
    for (conduct &c : state->threads) c = {};
    for (int i = 0; i < emulated.blocks; i++) forget(state->blocks[i]);
    wgmma_begin();
}

/* Arrivals may come when nobody waits any more, but not from one block to another, which may have
 * ended; nothing else may. */
void async_end(void)
{
    if (!async_used) return;
    for (const work &w : state->list)
        expect(w.kind == ARRIVE && w.blocks == 1, "a block ends before what it started is done");
    expect(state->puts.empty(), "a block ends before what it started is done");
    for (const own_work &o : state->own)
        expect(!own_ready(o), "a block ends before what it started is done");
    for (int i = 0; i < emulated.blocks; i++) {
        expect(!state->blocks[i].allocated, "a block ends and does not free its tensor memory");
        for (const named_barrier &b : state->blocks[i].named)
            expect(!b.arrived, "a block ends and some wait at a named barrier");
    }
    wgmma_end();
}
