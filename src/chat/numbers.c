#include "chat/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

struct reader {
    const char *text;
    size_t size, at;
};

static bool digit(const struct reader *r)
{
    return r->at < r->size && r->text[r->at] >= '0' && r->text[r->at] <= '9';
}

static bool next_is(const struct reader *r, char c)
{
    return r->at < r->size && r->text[r->at] == c;
}

/* Adds one digit; false, and nothing done, where 64 bits are not enough. */
static bool add_digit(uint64_t *value, char c)
{
    uint64_t more;
    if (__builtin_mul_overflow(*value, 10, &more) ||
        __builtin_add_overflow(more, (uint64_t)(c - '0'), &more))
        return false;
    *value = more;
    return true;
}

/* value * 10^exponent in the steps that serde_json takes, each rounded. */
static struct number scaled(bool negative, uint64_t value, int64_t exponent)
{
    double f = (double)value;
    while (f != 0 && exponent < -308) {
        f /= 1e308;
        exponent += 308;
    }
    if (f != 0 && exponent > 308) return (struct number){0};
    if (f != 0) {
        char power[16];
        snprintf(power, sizeof power, "1e%d", (int)(exponent < 0 ? -exponent : exponent));
        double p = strtod(power, NULL);
        f = exponent < 0 ? f / p : f * p;
    }
    if (isinf(f)) return (struct number){0};
    return (struct number){.kind = NUMBER_REAL, .real = negative ? -f : f};
}

/* The digits behind 'e', added to *exponent; held where it cannot matter any more. */
static bool read_exponent(struct reader *r, int64_t *exponent)
{
    int64_t value = 0;
    r->at++;
    bool negative = next_is(r, '-');
    if (negative || next_is(r, '+')) r->at++;
    if (!digit(r)) return false;
    for (; digit(r); r->at++)
        if (value < 1000000000) value = 10 * value + (r->text[r->at] - '0');
    *exponent += negative ? -value : value;
    return true;
}

struct number number_read(const char *text, size_t size, size_t *length)
{
    struct reader r = {text, size, 0};
    struct number none = {0};
    uint64_t value = 0;
    int64_t exponent = 0;
    bool negative = next_is(&r, '-'), real = false, full = false;
    *length = 0;
    if (negative) r.at++;
    if (!digit(&r)) return none;
    if (next_is(&r, '0') && r.at + 1 < size && text[r.at + 1] >= '0' && text[r.at + 1] <= '9')
        return none;
    for (; digit(&r); r.at++) {
        full = full || !add_digit(&value, r.text[r.at]);
        exponent += full;
    }
    real = full;
    if (next_is(&r, '.')) {
        real = true;
        r.at++;
        if (!digit(&r)) return none;
        for (; digit(&r); r.at++) {
            full = full || !add_digit(&value, r.text[r.at]);
            exponent -= !full;
        }
    }
    if (next_is(&r, 'e') || next_is(&r, 'E')) {
        real = true;
        if (!read_exponent(&r, &exponent)) return none;
    }
    *length = r.at;
    if (real) return scaled(negative, value, exponent);
    if (!negative && value > INT64_MAX) return (struct number){.kind = NUMBER_BIG, .big = value};
    if (negative && (value == 0 || value > (uint64_t)INT64_MAX + 1)) return scaled(true, value, 0);
    return (struct number){.kind = NUMBER_INT,
                           .integer = negative ? (int64_t)(0 - value) : (int64_t)value};
}

/* ---- printing ---- */

/* The fewest digits that give `value` back, without sign and point; *point is where the decimal
 * point lies, counted from before the first. */
static int shortest(double value, char digits[20], int *point)
{
    char text[32];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) == value) break;
    }
    int n = 0;
    char *at = text;
    for (; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9') digits[n++] = *at;
    while (n > 1 && digits[n - 1] == '0') n--;
    *point = (int)strtol(at + 1, NULL, 10) + 1;
    return n;
}

size_t number_print(double value, char out[NUMBER_TEXT_MAX])
{
    char digits[20] = "0", *to = out;
    int point;
    if (signbit(value)) *to++ = '-';
    int n = shortest(fabs(value), digits, &point);
    if (value == 0) {
        to += sprintf(to, "0.0");
    } else if (point > 0 && point <= 16) {
        for (int i = 0; i < n || i < point; i++) {
            if (i == point) *to++ = '.';
            *to++ = i < n ? digits[i] : '0';
        }
        if (n <= point) to += sprintf(to, ".0");
    } else if (point > -5 && point <= 0) {
        to += sprintf(to, "0.%.*s%.*s", -point, "0000", n, digits);
    } else {
        to += sprintf(to, "%c%s%.*se%d", digits[0], n > 1 ? "." : "", n - 1, digits + 1, point - 1);
    }
    return (size_t)(to - out);
}
