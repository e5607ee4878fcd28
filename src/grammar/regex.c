/* A pattern becomes a tree, the tree an automaton, from its end to its beginning. */
#include "grammar/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "grammar/chars.h"
#include "tok/pretokenize.h"

enum node_kind { NODE_SET, NODE_SEQUENCE, NODE_CHOICE, NODE_REPEAT, NODE_BEGIN, NODE_END };

enum { NONE = -1, UNLIMITED = INT32_MAX, EMIT_MAX = 1 << 20 };

/* Children are linked, the last one first, as that is the order in which they are needed. */
struct node {
    enum node_kind kind;
    int last, before; /* its last child; the one before it in its parent's list */
    int min, max;     /* repeat */
    struct char_set set;
};

struct regex {
    const char *text;
    size_t length, at;
    struct node *nodes;
    int count, capacity;
    int depth;
    struct nfa nfa;
    int emitted;
};

/* ---- the tree ---- */

static enum sol_status fault(const struct regex *r, enum sol_status code, const char *what)
{
    return status_set(code, "the pattern has %s at byte %zu", what, r->at + 1);
}

static enum sol_status add_node(struct regex *r, enum node_kind kind, int *out)
{
    if (r->count == r->capacity) {
        int capacity = r->capacity ? 2 * r->capacity : 32;
        struct node *grown = realloc(r->nodes, (size_t)capacity * sizeof *grown);
        if (!grown) return status_set(SOL_E_MEMORY, "no memory for a pattern");
        r->nodes = grown;
        r->capacity = capacity;
    }
    r->nodes[r->count] = (struct node){.kind = kind, .last = NONE, .before = NONE};
    *out = r->count++;
    return SOL_OK;
}

static void append(struct regex *r, int parent, int child)
{
    r->nodes[child].before = r->nodes[parent].last;
    r->nodes[parent].last = child;
}

static bool ends(const struct regex *r)
{
    return r->at == r->length;
}

static bool take(struct regex *r, const char *word)
{
    size_t n = strlen(word);
    if (r->length - r->at < n || memcmp(r->text + r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static enum sol_status read_char(struct regex *r, uint32_t *c)
{
    int n = utf8_decode(r->text + r->at, r->length - r->at, c);
    if (n <= 0) return fault(r, SOL_E_FORMAT, "bytes that are no UTF-8");
    r->at += (size_t)n;
    return SOL_OK;
}

/* ---- escapes and classes ---- */

static void add_digits(struct char_set *set)
{
    chars_add(set, '0', '9');
}

static void add_word(struct char_set *set)
{
    add_digits(set);
    chars_add(set, 'a', 'z');
    chars_add(set, 'A', 'Z');
    chars_add(set, '_', '_');
}

/* WhiteSpace and LineTerminator of ECMAScript. */
static void add_space(struct char_set *set)
{
    static const struct char_range spaces[] = {
        {9, 13},          {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        chars_add(set, spaces[i].lo, spaces[i].hi);
}

/* Adds the class that letter c names to `set`; false when it names none. */
static bool add_class(struct char_set *set, char c)
{
    struct char_set class = {0};
    if (c == 'd' || c == 'D')
        add_digits(&class);
    else if (c == 'w' || c == 'W')
        add_word(&class);
    else if (c == 's' || c == 'S')
        add_space(&class);
    else
        return false;
    if (c < 'a') chars_negate(&class);
    for (size_t i = 0; i < class.count; i++) chars_add(set, class.ranges[i].lo, class.ranges[i].hi);
    set->no_memory |= class.no_memory;
    chars_free(&class);
    return true;
}

static enum sol_status read_hex(struct regex *r, int digits, uint32_t *c)
{
    *c = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        char d = ends(r) ? 0 : r->text[r->at];
        unsigned value = d >= '0' && d <= '9'   ? (unsigned)(d - '0')
                         : d >= 'a' && d <= 'f' ? (unsigned)(d - 'a' + 10)
                         : d >= 'A' && d <= 'F' ? (unsigned)(d - 'A' + 10)
                                                : 16;
        if (value == 16) return fault(r, SOL_E_FORMAT, "too few hexadecimal digits");
        *c = *c * 16 + value;
    }
    return SOL_OK;
}

/* \u{...} or \uXXXX, of which two make a character where they are a surrogate pair. */
static enum sol_status read_unicode(struct regex *r, uint32_t *c)
{
    if (take(r, "{")) {
        size_t n = 0;
        while (r->at + n < r->length && r->text[r->at + n] != '}') n++;
        if (n == 0 || n > 6) return fault(r, SOL_E_FORMAT, "no character's number");
        SOL_TRY(read_hex(r, (int)n, c));
        if (!take(r, "}") || *c > CHARS_LAST)
            return fault(r, SOL_E_FORMAT, "no character's number");
        return SOL_OK;
    }
    SOL_TRY(read_hex(r, 4, c));
    if (*c >= 0xd800 && *c < 0xdc00 && take(r, "\\u")) {
        uint32_t low;
        SOL_TRY(read_hex(r, 4, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return fault(r, SOL_E_UNSUPPORTED, "half of a surrogate pair");
        *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
    }
    return SOL_OK;
}

/* Behind a backslash: one character, or a class, which is added to `set` (then *is_class). */
static enum sol_status read_escape(struct regex *r, struct char_set *set, uint32_t *c,
                                   bool *is_class)
{
    static const char letters[] = "nrtfv0", meaning[] = "\n\r\t\f\v";
    *is_class = false;
    if (ends(r)) return fault(r, SOL_E_FORMAT, "a lone backslash");
    char e = r->text[r->at];
    if (add_class(set, e)) {
        *is_class = true;
        r->at++;
        return SOL_OK;
    }
    const char *letter = e ? strchr(letters, e) : NULL;
    if (letter) {
        r->at++;
        *c = (uint32_t)meaning[letter - letters];
        if (e == '0' && !ends(r) && r->text[r->at] >= '0' && r->text[r->at] <= '9')
            return fault(r, SOL_E_UNSUPPORTED, "an octal escape");
        return SOL_OK;
    }
    if (take(r, "x")) return read_hex(r, 2, c);
    if (take(r, "u")) return read_unicode(r, c);
    if (e == 'p' || e == 'P')
        return fault(r, SOL_E_UNSUPPORTED, "a class of Unicode's properties (\\p)");
    if (e == 'b' || e == 'B') return fault(r, SOL_E_UNSUPPORTED, "a word boundary (\\b)");
    if ((e >= '1' && e <= '9') || e == 'k') return fault(r, SOL_E_UNSUPPORTED, "a back reference");
    if (e == 'c') return fault(r, SOL_E_UNSUPPORTED, "a control escape (\\c)");
    return read_char(r, c);
}

/* One end of a range in brackets, or a class. */
static enum sol_status read_member(struct regex *r, struct char_set *set, uint32_t *c,
                                   bool *is_class)
{
    *is_class = false;
    if (take(r, "\\b")) { /* in brackets a backspace */
        *c = '\b';
        return SOL_OK;
    }
    if (take(r, "\\")) return read_escape(r, set, c, is_class);
    return read_char(r, c);
}

static enum sol_status parse_brackets(struct regex *r, struct char_set *set)
{
    bool negated = take(r, "^"), lo_class, hi_class;
    while (!take(r, "]")) {
        uint32_t lo, hi;
        if (ends(r)) return fault(r, SOL_E_FORMAT, "no ] for its [");
        SOL_TRY(read_member(r, set, &lo, &lo_class));
        bool range = r->length - r->at >= 2 && r->text[r->at] == '-' && r->text[r->at + 1] != ']';
        if (!range) {
            if (!lo_class) chars_add(set, lo, lo);
            continue;
        }
        r->at++;
        SOL_TRY(read_member(r, set, &hi, &hi_class));
        if (lo_class || hi_class) { /* [\w-.]: a dash among others */
            chars_add(set, '-', '-');
            if (!lo_class) chars_add(set, lo, lo);
            if (!hi_class) chars_add(set, hi, hi);
            continue;
        }
        if (hi < lo) return fault(r, SOL_E_FORMAT, "a range that ends before it begins");
        chars_add(set, lo, hi);
    }
    if (negated)
        chars_negate(set);
    else
        chars_settle(set);
    return SOL_OK;
}

static enum sol_status parse_set(struct regex *r, struct char_set *set)
{
    uint32_t c;
    bool is_class = false;
    if (take(r, "[")) return parse_brackets(r, set);
    if (take(r, ".")) {
        chars_add(set, '\n', '\n');
        chars_add(set, '\r', '\r');
        chars_add(set, 0x2028, 0x2029);
        chars_negate(set);
        return SOL_OK;
    }
    if (take(r, "\\"))
        SOL_TRY(read_escape(r, set, &c, &is_class));
    else
        SOL_TRY(read_char(r, &c));
    if (!is_class) chars_add(set, c, c);
    chars_settle(set);
    return SOL_OK;
}

/* ---- repetitions, groups, alternatives ---- */

static bool read_number(struct regex *r, int *out)
{
    size_t begin = r->at;
    int64_t value = 0;
    for (; !ends(r) && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        if (value < UNLIMITED) value = value * 10 + (r->text[r->at] - '0');
    *out = value < UNLIMITED ? (int)value : UNLIMITED - 1;
    return r->at > begin;
}

/* {2}, {2,} or {2,5}; anything else is text, and stays. */
static bool read_braces(struct regex *r, int *min, int *max)
{
    size_t begin = r->at;
    if (take(r, "{") && read_number(r, min)) {
        *max = *min;
        if (take(r, ",") && !read_number(r, max)) *max = UNLIMITED;
        if (take(r, "}")) return true;
    }
    r->at = begin;
    return false;
}

static bool read_quantifier(struct regex *r, int *min, int *max)
{
    *min = 0;
    *max = UNLIMITED;
    if (take(r, "*")) return true;
    if (take(r, "?")) {
        *max = 1;
        return true;
    }
    if (take(r, "+")) {
        *min = 1;
        return true;
    }
    return read_braces(r, min, max);
}

static enum sol_status parse_choice(struct regex *r, int *out);

static enum sol_status parse_group(struct regex *r, int *out)
{
    if (take(r, "?")) {
        if (take(r, "=") || take(r, "!") || take(r, "<=") || take(r, "<!"))
            return fault(r, SOL_E_UNSUPPORTED, "look-around");
        if (take(r, "<")) {
            while (!ends(r) && r->text[r->at] != '>') r->at++;
            if (!take(r, ">")) return fault(r, SOL_E_FORMAT, "a group's name without end");
        } else if (!take(r, ":")) {
            return fault(r, SOL_E_UNSUPPORTED, "flags or an unknown kind of group");
        }
    }
    if (++r->depth > REGEX_NESTING_MAX)
        return fault(r, SOL_E_UNSUPPORTED, "groups in more than 64 groups");
    SOL_TRY(parse_choice(r, out));
    r->depth--;
    return take(r, ")") ? SOL_OK : fault(r, SOL_E_FORMAT, "no ) for its (");
}

static enum sol_status parse_item(struct regex *r, int *out)
{
    int min, max, repeat;
    if (take(r, "^")) return add_node(r, NODE_BEGIN, out);
    if (take(r, "$")) return add_node(r, NODE_END, out);
    if (read_quantifier(r, &min, &max)) return fault(r, SOL_E_FORMAT, "a repetition of nothing");
    if (take(r, "(")) {
        SOL_TRY(parse_group(r, out));
    } else {
        SOL_TRY(add_node(r, NODE_SET, out));
        SOL_TRY(parse_set(r, &r->nodes[*out].set));
        if (r->nodes[*out].set.no_memory)
            return status_set(SOL_E_MEMORY, "no memory for a pattern");
    }
    if (!read_quantifier(r, &min, &max)) return SOL_OK;
    take(r, "?"); /* as few as possible: the same strings */
    if (max < min) return fault(r, SOL_E_FORMAT, "a repetition from more to less");
    SOL_TRY(add_node(r, NODE_REPEAT, &repeat));
    r->nodes[repeat].min = min;
    r->nodes[repeat].max = max;
    append(r, repeat, *out);
    *out = repeat;
    return SOL_OK;
}

/* At most REGEX_NESTING_MAX deep. */
static enum sol_status parse_choice(struct regex *r, int *out)
{
    int sequence, item;
    SOL_TRY(add_node(r, NODE_CHOICE, out));
    do {
        SOL_TRY(add_node(r, NODE_SEQUENCE, &sequence));
        append(r, *out, sequence);
        while (!ends(r) && r->text[r->at] != '|' && r->text[r->at] != ')') {
            SOL_TRY(parse_item(r, &item));
            append(r, sequence, item);
        }
    } while (take(r, "|"));
    return SOL_OK;
}

/* ---- to an automaton ---- */

static uint32_t emit(struct regex *r, int node, uint32_t next);

static uint32_t emit_repeat(struct regex *r, const struct node *node, uint32_t next)
{
    int child = node->last;
    uint32_t state = next;
    if (node->max == UNLIMITED) {
        state = nfa_split(&r->nfa, next, next);
        nfa_set_split(&r->nfa, state, emit(r, child, state), next);
    } else {
        for (int i = node->min; i < node->max && !r->nfa.full; i++)
            state = nfa_split(&r->nfa, emit(r, child, state), next);
    }
    for (int i = 0; i < node->min && !r->nfa.full; i++) state = emit(r, child, state);
    return state;
}

/* As deep as groups are nested. What repeats nothing many times must end too, hence the count. */
static uint32_t emit(struct regex *r, int at, uint32_t next)
{
    const struct node *node = &r->nodes[at];
    uint32_t state;
    if (++r->emitted > EMIT_MAX) r->nfa.full = true;
    if (r->nfa.full) return next;
    switch (node->kind) {
    case NODE_SET:
        return chars_spelled(&r->nfa, &node->set, next);
    case NODE_BEGIN:
        return nfa_assert(&r->nfa, NFA_BEGIN, next);
    case NODE_END:
        return nfa_assert(&r->nfa, NFA_END, next);
    case NODE_REPEAT:
        return emit_repeat(r, node, next);
    case NODE_SEQUENCE:
        for (int child = node->last; child != NONE; child = r->nodes[child].before)
            next = emit(r, child, next);
        return next;
    case NODE_CHOICE:
        break;
    }
    state = emit(r, node->last, next);
    for (int child = r->nodes[node->last].before; child != NONE; child = r->nodes[child].before)
        state = nfa_split(&r->nfa, emit(r, child, next), state);
    return state;
}

/* Any characters around what is found. */
static uint32_t emit_any(struct nfa *nfa, const struct char_set *every, uint32_t next)
{
    uint32_t loop = nfa_split(nfa, next, next);
    nfa_set_split(nfa, loop, chars_spelled(nfa, every, loop), next);
    return loop;
}

/* Whether each alternative of the whole pattern begins (or ends) with this: then nothing can stand
 * around it, and a smaller automaton does. */
static bool all_have(const struct regex *r, int root, enum node_kind kind)
{
    for (int s = r->nodes[root].last; s != NONE; s = r->nodes[s].before) {
        int child = r->nodes[s].last;
        while (kind == NODE_BEGIN && child != NONE && r->nodes[child].before != NONE)
            child = r->nodes[child].before;
        if (child == NONE || r->nodes[child].kind != kind) return false;
    }
    return true;
}

static enum sol_status build(struct regex *r, struct dfa *out)
{
    int root;
    struct char_set every = {0};
    SOL_TRY(parse_choice(r, &root));
    if (!ends(r)) return fault(r, SOL_E_FORMAT, "a ) without its (");
    chars_negate(&every);
    uint32_t state = nfa_accept(&r->nfa);
    if (!all_have(r, root, NODE_END)) state = emit_any(&r->nfa, &every, state);
    state = emit(r, root, state);
    if (!all_have(r, root, NODE_BEGIN)) state = emit_any(&r->nfa, &every, state);
    if (every.no_memory) r->nfa.full = r->nfa.no_memory = true;
    chars_free(&every);
    return dfa_from_nfa(&r->nfa, state, out);
}

enum sol_status regex_compile(const char *pattern, size_t length, uint64_t *work, struct dfa *out)
{
    struct regex r = {.text = pattern, .length = length, .nfa.work = work};
    *out = (struct dfa){0};
    if (length > REGEX_LENGTH_MAX)
        return status_set(SOL_E_UNSUPPORTED, "the pattern has %zu bytes, %d are possible", length,
                          REGEX_LENGTH_MAX);
    enum sol_status status = build(&r, out);
    for (int i = 0; i < r.count; i++) chars_free(&r.nodes[i].set);
    free(r.nodes);
    nfa_free(&r.nfa);
    return status;
}
