/* A number's digits are compared with those of the bounds while they come, as a person would: the
 * text is smaller or larger from the first digit that differs, unless it has more or fewer digits
 * before the point. What must be known of the text so far fits into 64 bits (struct so_far), so the
 * automaton is found by exploring. */
#include "grammar/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Digits before the point and behind it, without zeros that do not count. */
struct decimal {
    bool negative;
    int whole, fraction; /* how many digits */
    char digits[2 * NUMBER_DIGITS_MAX];
};

struct bound {
    bool given, exclusive;
    struct decimal value;
};

struct number {
    bool integer, free; /* free: neither bounds nor multiple */
    struct bound low, high;
    unsigned multiple;           /* 0: none */
    int multiple_places;         /* digits behind the point that count in it */
    int whole_cap, fraction_cap; /* more digits than these change nothing */
};

/* ---- bounds as digits ---- */

/* The shortest text that gives this double back. */
static void shortest(double value, char text[40])
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, 40, "%.*e", digits - 1, value);
        if (strtod(text, NULL) == value) return;
    }
}

static enum sol_status too_long(void)
{
    return status_set(SOL_E_UNSUPPORTED, "has more than %d digits before or behind the point",
                      NUMBER_DIGITS_MAX);
}

/* The digits of d.ddde+-x into `out`. */
static enum sol_status from_text(const char *text, struct decimal *out)
{
    char digits[40] = "";
    int n = 0, exponent = 0;
    const char *e = strchr(text, 'e');
    if (e) exponent = atoi(e + 1);
    *out = (struct decimal){.negative = *text == '-'};
    int point = -1; /* digits before it */
    for (const char *p = text + (*text == '-'); *p && *p != 'e'; p++) {
        if (*p == '.')
            point = n;
        else
            digits[n++] = *p;
    }
    point = (point < 0 ? n : point) + exponent;
    while (n && digits[n - 1] == '0') n--;
    if (point > NUMBER_DIGITS_MAX || n - point > NUMBER_DIGITS_MAX) return too_long();
    int begin = point < 0 ? point : 0, end = n > point ? n : point;
    int skipped = 0;
    while (begin + skipped < point && (begin + skipped >= n || digits[begin + skipped] == '0'))
        skipped++;
    begin += skipped;
    out->whole = point > begin ? point - begin : 0;
    out->fraction = end > point && n ? end - (point > begin ? point : begin) : 0;
    for (int i = 0; i < out->whole + out->fraction; i++) {
        int at = begin + i;
        out->digits[i] = at >= 0 && at < n ? digits[at] : '0';
    }
    return SOL_OK;
}

static enum sol_status read_decimal(const json_t *value, struct decimal *out)
{
    char text[40];
    if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else
        shortest(json_real_value(value), text);
    return from_text(text, out);
}

static enum sol_status read_bound(const struct number_bound *from, struct bound *out)
{
    out->given = from->value != NULL;
    out->exclusive = from->exclusive;
    return out->given ? read_decimal(from->value, &out->value) : SOL_OK;
}

static enum sol_status read_multiple(const json_t *value, struct number *n)
{
    struct decimal m;
    int64_t scaled = 0;
    if (json_number_value(value) <= 0)
        return status_set(SOL_E_FORMAT, "multipleOf must be above 0");
    SOL_TRY(read_decimal(value, &m));
    for (int i = 0; i < m.whole + m.fraction && scaled <= NUMBER_MULTIPLE_MAX; i++)
        scaled = scaled * 10 + (m.digits[i] - '0');
    if (scaled > NUMBER_MULTIPLE_MAX || m.fraction > 9)
        return status_set(SOL_E_UNSUPPORTED, "multipleOf %.17g has too many digits, %d is possible",
                          json_number_value(value), NUMBER_MULTIPLE_MAX);
    n->multiple = (unsigned)scaled;
    n->multiple_places = m.fraction;
    return SOL_OK;
}

/* ---- what was read so far ---- */

enum phase { START, MINUS, ZERO, WHOLE, POINT, FRACTION, EXPONENT, EXPONENT_SIGN, EXPONENT_DIGITS };

/* How the digits so far compare with as many of a bound's. */
enum order { EQUAL, LESS, MORE };

struct so_far {
    unsigned phase, negative, whole, fraction, low, high, rest;
};

static uint64_t pack(const struct so_far *s)
{
    return (uint64_t)s->phase | (uint64_t)s->negative << 4 | (uint64_t)s->whole << 5 |
           (uint64_t)s->fraction << 13 | (uint64_t)s->low << 21 | (uint64_t)s->high << 23 |
           (uint64_t)s->rest << 25;
}

static struct so_far unpack(uint64_t state)
{
    return (struct so_far){.phase = state & 15,
                           .negative = state >> 4 & 1,
                           .whole = state >> 5 & 255,
                           .fraction = state >> 13 & 255,
                           .low = state >> 21 & 3,
                           .high = state >> 23 & 3,
                           .rest = (unsigned)(state >> 25)};
}

/* `at`: the digit's place, counted from the first of the number or from the point. */
static unsigned compare_digit(const struct bound *bound, unsigned so_far, unsigned at,
                              bool fraction, uint8_t digit)
{
    if (!bound->given || so_far != EQUAL) return so_far;
    const struct decimal *d = &bound->value;
    int n = fraction ? d->fraction : d->whole;
    char other = (int)at < n ? d->digits[(fraction ? d->whole : 0) + (int)at] : '0';
    /* Before the point more digits decide at its end. */
    if (!fraction && (int)at >= n) return EQUAL;
    return digit < other ? LESS : digit > other ? MORE : EQUAL;
}

/* At the end of the whole part: more digits are a larger number. */
static unsigned compare_whole(const struct bound *bound, unsigned so_far, unsigned whole)
{
    if (!bound->given || (int)whole == bound->value.whole) return so_far;
    return (int)whole < bound->value.whole ? LESS : MORE;
}

static void end_whole(const struct number *n, struct so_far *s)
{
    s->low = compare_whole(&n->low, s->low, s->whole);
    s->high = compare_whole(&n->high, s->high, s->whole);
    s->whole = 0; /* it is in the order now */
}

static void add_digit(const struct number *n, struct so_far *s, bool fraction, uint8_t digit)
{
    unsigned at = fraction ? s->fraction : s->whole;
    s->low = compare_digit(&n->low, s->low, at, fraction, digit);
    s->high = compare_digit(&n->high, s->high, at, fraction, digit);
    if (n->multiple && (!fraction || (int)at < n->multiple_places))
        s->rest = (s->rest * 10 + (unsigned)(digit - '0')) % n->multiple;
    int cap = fraction ? n->fraction_cap : n->whole_cap;
    if ((int)at < cap) (void)(fraction ? s->fraction++ : s->whole++);
}

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* Behind the point and in the exponent; the phase, or -1. */
static int step_tail(const struct number *n, struct so_far *s, uint8_t byte)
{
    switch (s->phase) {
    case POINT:
    case FRACTION:
        if (s->phase == FRACTION && n->free && (byte == 'e' || byte == 'E')) return EXPONENT;
        if (!is_digit(byte)) return -1;
        if (n->multiple && (int)s->fraction >= n->multiple_places) return -1;
        add_digit(n, s, true, byte);
        return FRACTION;
    case EXPONENT:
        if (byte == '+' || byte == '-') return EXPONENT_SIGN;
        return is_digit(byte) ? EXPONENT_DIGITS : -1;
    default:
        return is_digit(byte) ? EXPONENT_DIGITS : -1;
    }
}

static uint64_t step(const void *arg, uint64_t state, uint8_t byte)
{
    const struct number *n = arg;
    struct so_far s = unpack(state);
    int phase = -1;
    switch (s.phase) {
    case START:
    case MINUS:
        if (s.phase == START && byte == '-') {
            s.negative = 1;
            phase = MINUS;
        } else if (byte == '0') {
            phase = ZERO; /* no digit of it counts */
        } else if (is_digit(byte)) {
            add_digit(n, &s, false, byte);
            phase = WHOLE;
        }
        break;
    case ZERO:
    case WHOLE:
        if (s.phase == WHOLE && is_digit(byte)) {
            add_digit(n, &s, false, byte);
            phase = WHOLE;
        } else if (byte == '.' && !n->integer && (!n->multiple || n->multiple_places)) {
            end_whole(n, &s);
            phase = POINT;
        } else if ((byte == 'e' || byte == 'E') && n->free && !n->integer) {
            phase = EXPONENT;
        }
        break;
    default:
        phase = step_tail(n, &s, byte);
    }
    if (phase < 0) return DFA_NONE;
    s.phase = (unsigned)phase;
    return pack(&s);
}

/* How the whole number compares with the bound, signs and all. -0 is no more than 0, but as if
 * below it where 0 is the least: who wants no negative number wants no sign either. */
static enum order compare_end(const struct bound *bound, const struct so_far *s, unsigned order,
                              bool low)
{
    const struct decimal *d = &bound->value;
    bool bound_zero = d->whole + d->fraction == 0, bound_negative = d->negative && !bound_zero;
    if (bound_zero && order == EQUAL) return s->negative && low ? LESS : EQUAL;
    if (s->negative != bound_negative) return s->negative ? LESS : MORE;
    /* Equal as far as it goes; the bound may have more digits. */
    if (order == EQUAL && (int)s->fraction < d->fraction) order = LESS;
    if (order == EQUAL || !s->negative) return (enum order)order;
    return order == LESS ? MORE : LESS;
}

static bool accepts(const void *arg, uint64_t state)
{
    const struct number *n = arg;
    struct so_far s = unpack(state);
    if (s.phase != ZERO && s.phase != WHOLE && s.phase != FRACTION && s.phase != EXPONENT_DIGITS)
        return false;
    if (n->free) return true;
    if (s.phase != FRACTION) end_whole(n, &s);
    unsigned rest = s.rest;
    for (int i = s.phase == FRACTION ? (int)s.fraction : 0; n->multiple && i < n->multiple_places;
         i++)
        rest = rest * 10 % n->multiple;
    if (rest) return false;
    enum order low = n->low.given ? compare_end(&n->low, &s, s.low, true) : MORE;
    enum order high = n->high.given ? compare_end(&n->high, &s, s.high, false) : LESS;
    return (low == MORE || (low == EQUAL && !n->low.exclusive)) &&
           (high == LESS || (high == EQUAL && !n->high.exclusive));
}

static void set_caps(struct number *n)
{
    const struct bound *bounds[] = {&n->low, &n->high};
    n->fraction_cap = n->multiple_places;
    for (int i = 0; i < 2; i++) {
        if (!bounds[i]->given) continue;
        const struct decimal *d = &bounds[i]->value;
        if (d->whole >= n->whole_cap) n->whole_cap = d->whole + 1;
        if (d->fraction > n->fraction_cap) n->fraction_cap = d->fraction;
    }
}

enum sol_status number_compile(const struct number_rules *rules, struct dfa *out)
{
    struct number n = {.integer = rules->integer};
    *out = (struct dfa){0};
    SOL_TRY(read_bound(&rules->low, &n.low));
    SOL_TRY(read_bound(&rules->high, &n.high));
    if (rules->multiple) SOL_TRY(read_multiple(rules->multiple, &n));
    n.free = !n.low.given && !n.high.given && !n.multiple;
    set_caps(&n);
    struct dfa_source source = {.step = step,
                                .accepts = accepts,
                                .arg = &n,
                                .work = rules->work,
                                .start = pack(&(struct so_far){START})};
    for (int b = 1; b < 256; b++) {
        bool digit_pair = is_digit((uint8_t)b) || is_digit((uint8_t)(b - 1));
        bool word = strchr("+-.eE", b) || strchr("+-.eE", b - 1);
        source.same[b] = !digit_pair && !(word && b > 1);
    }
    source.same[1] = true;
    return dfa_explore(&source, out);
}
