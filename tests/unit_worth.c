/* How many guesses are worth making and checking: against what would be best, of times and chances
 * that are known here; what is tried before anything is known; rests where guesses gain nothing;
 * and times that say nothing. */
#include "generate/worth.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"

/* A device and a text: a step takes 1000 and `row` for each row more, a guess `guess`; the head is
 * as sure as `sure` says, and right as often as `chance`. */
struct world {
    double row, guess;
    float sure;
    double chance;
    double jitter; /* of times, exponential, its mean */
    double slow;   /* the first step of `slow_rows` that counts takes so many times as long */
    int64_t slow_rows;
    struct rng rng;
    struct worth w;
    int64_t tokens, steps, made, checked;
    double ns;
};

static void start(struct world *o, uint64_t seed)
{
    rng_seed(&o->rng, seed);
    worth_init(&o->w);
}

static int64_t make(struct world *o, float *sure)
{
    int64_t n = 0;
    if (!worth_begin(&o->w)) return 0;
    do {
        sure[n++] = o->sure;
        worth_took_guess(&o->w, n - 1, o->guess);
        o->ns += o->guess;
    } while (worth_another(&o->w, sure, n));
    return n;
}

static void step(struct world *o)
{
    float sure[DRAFT_MOST];
    const int64_t made = make(o, sure), checked = worth_count(&o->w, sure, made);
    const double usual = 1000 + o->row * (double)checked;
    const double ns = usual * (1 - o->jitter * log(1 - rng_uniform(&o->rng)));
    int64_t right = 0;
    assert_true(checked <= made);
    while (right < checked && rng_uniform(&o->rng) < o->chance) right++;
    for (int64_t i = 0; i < checked && i <= right; i++) worth_learn(&o->w, sure[i], i < right);
    const bool slow = 1 + checked == o->slow_rows && o->w.steps[1 + checked].seen == 2;
    worth_took_step(&o->w, 1 + checked, made, slow ? o->slow * ns : ns, 1 + right);
    o->ns += usual;
    o->tokens += 1 + right;
    o->made += made;
    o->checked += checked;
    o->steps++;
}

/* Tokens in the time of a step without guesses. */
static double speed(const struct world *o)
{
    return 1000 * (double)o->tokens / o->ns;
}

static void run(struct world *o, int steps)
{
    o->tokens = o->steps = o->made = o->checked = 0;
    o->ns = 0;
    for (int i = 0; i < steps; i++) step(o);
}

/* Always so many. */
static double speed_of(const struct world *o, int n)
{
    double tokens = 1, all = 1;
    for (int i = 0; i < n; i++) tokens += all *= o->chance;
    return 1000 * tokens / (1000 + n * (o->row + o->guess));
}

static double best_speed(const struct world *o)
{
    double best = 1;
    for (int n = 1; n <= DRAFT_MOST; n++)
        if (speed_of(o, n) > best) best = speed_of(o, n);
    return best;
}

/* Of some plays of a world. */
static struct world slowest_of(const struct world *like)
{
    struct world slowest = *like;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct world o = *like;
        start(&o, seed);
        run(&o, 500);
        run(&o, 3000);
        if (seed == 1 || speed(&o) < speed(&slowest)) slowest = o;
    }
    return slowest;
}

/* As fast as the best number of guesses, whatever the head says of itself. */
static void test_best(void **state)
{
    (void)state;
    static const struct world worlds[] = {
        {.row = 50, .guess = 50, .sure = 0.95f, .chance = 0.95},
        {.row = 50, .guess = 50, .sure = 0.25f, .chance = 0.95},
        {.row = 300, .guess = 100, .sure = 0.75f, .chance = 0.75},
        {.row = 300, .guess = 100, .sure = 0.95f, .chance = 0.1},
        {.row = 20, .guess = 5, .sure = 0.55f, .chance = 0.5},
        {.row = 900, .guess = 400, .sure = 0.55f, .chance = 0.5},
        {.row = 50, .guess = 50, .sure = 0.85f, .chance = 0.85, .slow = 1.6, .slow_rows = 3},
        {.row = 50, .guess = 50, .sure = 0.85f, .chance = 0.85, .slow = 5, .slow_rows = 2},
        {.row = 50, .guess = 50, .sure = 0.85f, .chance = 0.85, .jitter = 0.2},
        {.row = 300, .guess = 100, .sure = 0.75f, .chance = 0.75, .jitter = 0.2},
    };
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        const struct world o = slowest_of(&worlds[i]);
        const double best = best_speed(&o), got = speed(&o);
        print_message("world %zu: %.3f, always the best number %.3f; %.2f made, %.2f checked\n", i,
                      got, best, (double)o.made / (double)o.steps,
                      (double)o.checked / (double)o.steps);
        assert_true(got > 0.93 * best);
    }
}

/* At most as many rows as a step can have. */
static void test_most(void **state)
{
    (void)state;
    struct world o = {.row = 1, .guess = 1, .sure = 0.99f, .chance = 1};
    start(&o, 3);
    run(&o, 300);
    assert_true(o.checked > 14 * 200);
    assert_true(o.w.steps[DRAFT_MOST + 1].seen > 100);
}

/* Guesses that the head is not sure of are not checked where others are. */
static void test_sure(void **state)
{
    (void)state;
    struct worth w;
    const float sure[] = {0.95f, 0.95f, 0.15f, 0.95f};
    worth_init(&w);
    assert_false(worth_begin(&w));
    for (int rows = 1; rows <= 5; rows++)
        for (int i = 0; i < 4; i++) worth_took_step(&w, rows, 0, 1000 + 300 * (rows - 1), 1);
    for (int i = 0; i < 4; i++) worth_took_guess(&w, 0, 50);
    assert_true(worth_begin(&w));
    assert_true(worth_another(&w, sure, 1));
    assert_true(worth_another(&w, sure, 2));
    assert_false(worth_another(&w, sure, 3));
    assert_int_equal(worth_count(&w, sure, 4), 2);
    assert_int_equal(worth_count(&w, sure + 2, 2), 0);
}

/* A text that cannot be foreseen loses little, and one that can be from some place on is noticed.
 */
static void test_rests(void **state)
{
    (void)state;
    struct world o = {.row = 300, .guess = 150, .sure = 0.55f, .chance = 0.02};
    start(&o, 3);
    run(&o, 2000);
    print_message("%.3f of the speed without, %.2f made\n", speed(&o), (double)o.made / 2000);
    assert_true(speed(&o) > 0.95);
    o.chance = 0.95;
    run(&o, 200);
    run(&o, 500);
    assert_true(speed(&o) > 0.95 * best_speed(&o));
}

/* The first steps of a size take long, and some are held up. */
static void test_times(void **state)
{
    (void)state;
    struct worth w;
    worth_init(&w);
    const double times[] = {90000, 20000, 1000, 1000, 50000, 1000};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        worth_took_step(&w, 1, 0, times[i], 1);
    assert_float_equal(worth_step_ns(&w, 1), 1000, 1e-9);
    for (int i = 0; i < 5; i++) worth_took_step(&w, 1, 0, 5000, 1); /* that is how it is now */
    assert_float_equal(worth_step_ns(&w, 1), 5000, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best),  cmocka_unit_test(test_most),  cmocka_unit_test(test_sure),
        cmocka_unit_test(test_rests), cmocka_unit_test(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
