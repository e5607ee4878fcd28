/* Words are looked at once each, whatever their count. For every pair of neighbours there are its
 * count over all words and a list of the words that had it at some time. A merge walks through the
 * words of its pair only, and corrects the counts of the pairs it breaks up and makes.
 *
 * The most frequent pair comes from a heap of (count, pair) whose entries are not corrected: counts
 * of old pairs only fall, so an entry that is too high is found when it comes up, and goes back in
 * with its present count. A pair whose count rises gets another entry.
 *
 * The `tokenizers` library leaves the count of a merged pair as it was, so that a pair that comes
 * up again (its right half having been made in another way) counts for more than it should. The
 * same is done here, to agree with it. */
#include "tok/bpe_train.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/status.h"
#include "tok/alphabet.h"

enum {
    N_BYTES = 256,
    LENGTH_MAX = 1023, /* bytes of a token: what readers of vocabularies accept */
    FIRST_PAIRS = 1 << 16,
};

struct pair {
    uint64_t key; /* left << 32 | right */
    int64_t count;
    uint32_t *words; /* each once per merge that added it */
    uint32_t n_words, capacity;
    int32_t step; /* the last merge that raised the count */
    bool merged;  /* a rule has been made of it */
};

struct entry {
    int64_t count;
    uint64_t key;
    uint32_t pair;
};

struct trainer {
    struct bpe_vocabulary *v;
    size_t vocab_size, bytes_capacity, rules_capacity;
    uint32_t *token_slots; /* bytes -> id + 1, 0: empty */
    size_t token_mask;

    /* words: symbols[starts[w]] to symbols[starts[w] + lengths[w]] */
    size_t n_words;
    int32_t *symbols;
    size_t *starts;
    uint32_t *lengths;
    uint64_t *counts;

    struct pair *pairs;
    size_t n_pairs, pairs_capacity;
    uint32_t *pair_slots; /* key -> index + 1, 0: empty */
    size_t pair_mask;

    struct entry *heap;
    size_t n_heap, heap_capacity;

    uint32_t *raised; /* pairs whose count the present merge raised */
    size_t n_raised, raised_capacity;
    int32_t step;
};

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory to train a vocabulary");
}

/* ---- heap ---- */

static bool comes_before(const struct entry *a, const struct entry *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static enum sol_status heap_push(struct trainer *t, uint32_t pair)
{
    struct entry entry = {t->pairs[pair].count, t->pairs[pair].key, pair};
    SOL_TRY(array_grow(&t->heap, t->n_heap, &t->heap_capacity, sizeof *t->heap,
                       "training a vocabulary"));
    size_t at = t->n_heap++;
    for (; at > 0 && comes_before(&entry, &t->heap[(at - 1) / 2]); at = (at - 1) / 2)
        t->heap[at] = t->heap[(at - 1) / 2];
    t->heap[at] = entry;
    return SOL_OK;
}

static struct entry heap_pop(struct trainer *t)
{
    struct entry top = t->heap[0], last = t->heap[--t->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < t->n_heap; at = child) {
        if (child + 1 < t->n_heap && comes_before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!comes_before(&t->heap[child], &last)) break;
        t->heap[at] = t->heap[child];
    }
    t->heap[at] = last;
    return top;
}

/* ---- tokens ---- */

static uint32_t token_length(const struct trainer *t, int32_t id)
{
    return t->v->offsets[id + 1] - t->v->offsets[id];
}

/* The id of these bytes, which lie behind the last token's; a new one where there is none. */
static int32_t intern_token(struct trainer *t, size_t length)
{
    struct bpe_vocabulary *v = t->v;
    const char *bytes = v->bytes + v->offsets[v->n_tokens];
    size_t at = (size_t)bytes_hash(bytes, length) & t->token_mask;
    for (; t->token_slots[at]; at = (at + 1) & t->token_mask) {
        int32_t id = (int32_t)t->token_slots[at] - 1;
        if (token_length(t, id) == length && !memcmp(v->bytes + v->offsets[id], bytes, length))
            return id;
    }
    v->offsets[v->n_tokens + 1] = v->offsets[v->n_tokens] + (uint32_t)length;
    t->token_slots[at] = (uint32_t)++v->n_tokens;
    return (int32_t)v->n_tokens - 1;
}

/* The token that left and right make. */
static enum sol_status join(struct trainer *t, int32_t left, int32_t right, int32_t *id)
{
    struct bpe_vocabulary *v = t->v;
    size_t used = v->offsets[v->n_tokens], n_left = token_length(t, left);
    size_t n_right = token_length(t, right);
    while (t->bytes_capacity - used < n_left + n_right) {
        char *grown = realloc(v->bytes, 2 * t->bytes_capacity);
        if (!grown) return no_memory();
        v->bytes = grown;
        t->bytes_capacity *= 2;
    }
    memcpy(v->bytes + used, v->bytes + v->offsets[left], n_left);
    memcpy(v->bytes + used + n_left, v->bytes + v->offsets[right], n_right);
    *id = intern_token(t, n_left + n_right);
    return SOL_OK;
}

static enum sol_status make_byte_tokens(struct trainer *t)
{
    struct bpe_vocabulary *v = t->v;
    size_t slots = 1024;
    uint8_t order[N_BYTES];
    while (slots / 2 < t->vocab_size) slots *= 2; /* at most TRAIN_TOKENS_MAX */
    t->token_mask = slots - 1;
    t->token_slots = calloc(slots, sizeof *t->token_slots);
    t->bytes_capacity = 8 * t->vocab_size;
    v->bytes = malloc(t->bytes_capacity);
    v->offsets = calloc(t->vocab_size + 1, sizeof *v->offsets);
    if (!t->token_slots || !v->bytes || !v->offsets) return no_memory();
    alphabet_order(order);
    for (int i = 0; i < N_BYTES; i++) {
        v->bytes[i] = (char)order[i];
        (void)intern_token(t, 1);
    }
    return SOL_OK;
}

/* ---- pairs ---- */

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t slot_of(const struct trainer *t, uint64_t key)
{
    size_t at = (size_t)bytes_hash_mix(bytes_hash_mix(key)) & t->pair_mask;
    while (t->pair_slots[at] && t->pairs[t->pair_slots[at] - 1].key != key)
        at = (at + 1) & t->pair_mask;
    return at;
}

static enum sol_status resize_pair_slots(struct trainer *t, size_t slots)
{
    free(t->pair_slots);
    t->pair_slots = slots < UINT32_MAX ? calloc(slots, sizeof *t->pair_slots) : NULL;
    if (!t->pair_slots) return no_memory();
    t->pair_mask = slots - 1;
    for (size_t i = 0; i < t->n_pairs; i++)
        t->pair_slots[slot_of(t, t->pairs[i].key)] = (uint32_t)i + 1;
    return SOL_OK;
}

static enum sol_status find_pair(struct trainer *t, uint64_t key, uint32_t *index)
{
    size_t at = slot_of(t, key);
    if (!t->pair_slots[at]) {
        SOL_TRY(array_grow(&t->pairs, t->n_pairs, &t->pairs_capacity, sizeof *t->pairs,
                           "training a vocabulary"));
        t->pairs[t->n_pairs++] = (struct pair){.key = key, .step = -1};
        t->pair_slots[at] = (uint32_t)t->n_pairs;
        *index = (uint32_t)t->n_pairs - 1;
        return t->n_pairs <= t->pair_mask / 2 ? SOL_OK
                                              : resize_pair_slots(t, 2 * (t->pair_mask + 1));
    }
    *index = t->pair_slots[at] - 1;
    return SOL_OK;
}

static enum sol_status lower(struct trainer *t, int32_t left, int32_t right, uint32_t word)
{
    uint32_t index;
    SOL_TRY(find_pair(t, key_of(left, right), &index));
    t->pairs[index].count -= (int64_t)t->counts[word];
    return SOL_OK;
}

static enum sol_status raise(struct trainer *t, int32_t left, int32_t right, uint32_t word)
{
    uint32_t index;
    SOL_TRY(find_pair(t, key_of(left, right), &index));
    struct pair *pair = &t->pairs[index];
    pair->count += (int64_t)t->counts[word];
    if (pair->step != t->step) {
        SOL_TRY(array_grow(&t->raised, t->n_raised, &t->raised_capacity, sizeof *t->raised,
                           "training a vocabulary"));
        t->raised[t->n_raised++] = index;
        pair->step = t->step;
    }
    if (pair->n_words && pair->words[pair->n_words - 1] == word) return SOL_OK;
    if (pair->n_words == pair->capacity) { /* half of the pairs are in one word */
        uint32_t capacity = pair->capacity ? 2 * pair->capacity : 1;
        uint32_t *grown = realloc(pair->words, capacity * sizeof *grown);
        if (!grown) return no_memory();
        pair->words = grown;
        pair->capacity = capacity;
    }
    pair->words[pair->n_words++] = word;
    return SOL_OK;
}

/* Heap entries for everything the present step raised. */
static enum sol_status push_raised(struct trainer *t)
{
    for (size_t i = 0; i < t->n_raised; i++)
        if (t->pairs[t->raised[i]].count > 0) SOL_TRY(heap_push(t, t->raised[i]));
    t->n_raised = 0;
    t->step++;
    return SOL_OK;
}

/* ---- words ---- */

/* Words of one byte have no pairs. */
static enum sol_status take_words(struct trainer *t, const struct word_counts *words)
{
    size_t n_symbols = 0, at = 0;
    int32_t ids[N_BYTES];
    for (int i = 0; i < N_BYTES; i++) ids[(unsigned char)t->v->bytes[i]] = i;
    for (size_t i = 0; i <= words->mask; i++) {
        const struct word *word = &words->slots[i];
        if (!word->text) continue;
        t->v->text_bytes += word->length * word->count;
        t->v->text_tokens += word->length == 1 ? word->count : 0;
        t->n_words += word->length > 1;
        n_symbols += word->length > 1 ? word->length : 0;
    }
    if (t->n_words >= UINT32_MAX)
        return status_set(SOL_E_MEMORY, "%zu different words are too many", t->n_words);
    t->symbols = malloc((n_symbols + 1) * sizeof *t->symbols);
    t->starts = malloc((t->n_words + 1) * sizeof *t->starts);
    t->lengths = malloc((t->n_words + 1) * sizeof *t->lengths);
    t->counts = malloc((t->n_words + 1) * sizeof *t->counts);
    if (!t->symbols || !t->starts || !t->lengths || !t->counts) return no_memory();
    size_t w = 0;
    for (size_t i = 0; i <= words->mask; i++) {
        const struct word *word = &words->slots[i];
        if (!word->text || word->length < 2) continue;
        t->starts[w] = at;
        t->lengths[w] = word->length;
        t->counts[w++] = word->count;
        for (uint32_t k = 0; k < word->length; k++)
            t->symbols[at++] = ids[(unsigned char)word->text[k]];
    }
    return SOL_OK;
}

static enum sol_status count_pairs(struct trainer *t)
{
    SOL_TRY(resize_pair_slots(t, FIRST_PAIRS));
    for (uint32_t w = 0; w < t->n_words; w++) {
        const int32_t *s = t->symbols + t->starts[w];
        for (uint32_t i = 0; i + 1 < t->lengths[w]; i++) SOL_TRY(raise(t, s[i], s[i + 1], w));
    }
    return push_raised(t);
}

/* Merges within one word. Each merge is counted as if it were the only one so far, as the
 * `tokenizers` library does: behind "a b" in "a b a b", the pair (b, a) makes way for (ab, a),
 * which the second merge then takes back. */
static enum sol_status merge_word(struct trainer *t, uint32_t word, int32_t left, int32_t right,
                                  int32_t merged)
{
    int32_t *s = t->symbols + t->starts[word];
    uint32_t length = t->lengths[word], to = 0;
    uint32_t merged_length = token_length(t, merged);
    for (uint32_t from = 0; from < length;) {
        if (s[from] != left || from + 1 == length || s[from + 1] != right) {
            s[to++] = s[from++];
            continue;
        }
        if (to > 0) {
            SOL_TRY(lower(t, s[to - 1], left, word));
            if (token_length(t, s[to - 1]) + merged_length <= LENGTH_MAX)
                SOL_TRY(raise(t, s[to - 1], merged, word));
        }
        from += 2;
        if (from < length) {
            SOL_TRY(lower(t, right, s[from], word));
            if (token_length(t, s[from]) + merged_length <= LENGTH_MAX)
                SOL_TRY(raise(t, merged, s[from], word));
        }
        s[to++] = merged;
    }
    t->lengths[word] = to;
    return SOL_OK;
}

/* ---- training ---- */

static enum sol_status add_rule(struct trainer *t, struct bpe_rule rule)
{
    SOL_TRY(array_grow(&t->v->rules, t->v->n_rules, &t->rules_capacity, sizeof *t->v->rules,
                       "training a vocabulary"));
    t->v->rules[t->v->n_rules++] = rule;
    return SOL_OK;
}

static enum sol_status merge_pair(struct trainer *t, uint32_t index)
{
    struct pair *pair = &t->pairs[index];
    int32_t left = (int32_t)(pair->key >> 32), right = (int32_t)(uint32_t)pair->key, merged;
    uint32_t *words = pair->words, n_words = pair->n_words;
    bool again = pair->merged;
    SOL_TRY(join(t, left, right, &merged));
    if (!again) SOL_TRY(add_rule(t, (struct bpe_rule){left, right, merged}));
    pair->merged = true;
    /* The list is taken off first, since the walk may add to it and may move the pairs. */
    pair->words = NULL;
    pair->n_words = pair->capacity = 0;
    enum sol_status status = SOL_OK;
    for (uint32_t i = 0; i < n_words && status == SOL_OK; i++)
        status = merge_word(t, words[i], left, right, merged);
    free(words);
    return status == SOL_OK ? push_raised(t) : status;
}

static enum sol_status merge_pairs(struct trainer *t, struct progress *progress)
{
    while (t->v->n_tokens < t->vocab_size && t->n_heap) {
        struct entry top = heap_pop(t);
        const struct pair *pair = &t->pairs[top.pair];
        if (pair->n_words == 0) continue; /* another entry of the pair came first */
        if (pair->count != top.count) {
            if (pair->count > 0) SOL_TRY(heap_push(t, top.pair));
            continue;
        }
        SOL_TRY(merge_pair(t, top.pair));
        if (t->v->n_tokens % 64) continue;
        progress_update(progress, t->v->n_tokens);
        SOL_TRY(interrupt_check());
    }
    for (size_t w = 0; w < t->n_words; w++) t->v->text_tokens += t->lengths[w] * t->counts[w];
    return SOL_OK;
}

static void trainer_free(struct trainer *t)
{
    for (size_t i = 0; i < t->n_pairs; i++) free(t->pairs[i].words);
    free(t->pairs);
    free(t->pair_slots);
    free(t->token_slots);
    free(t->symbols);
    free(t->starts);
    free(t->lengths);
    free(t->counts);
    free(t->heap);
    free(t->raised);
}

enum sol_status bpe_train(const struct word_counts *words, size_t vocab_size,
                          struct bpe_vocabulary *out)
{
    struct trainer t = {.v = out, .vocab_size = vocab_size};
    struct progress progress;
    *out = (struct bpe_vocabulary){0};
    if (vocab_size < TRAIN_TOKENS_MIN || vocab_size > TRAIN_TOKENS_MAX)
        return status_set(SOL_E_ARGUMENT, "a vocabulary of %zu tokens; %d to %d are possible",
                          vocab_size, TRAIN_TOKENS_MIN, TRAIN_TOKENS_MAX);
    progress_start(&progress, "merging", "tokens", vocab_size);
    enum sol_status status = make_byte_tokens(&t);
    if (status == SOL_OK) status = take_words(&t, words);
    if (status == SOL_OK) status = count_pairs(&t);
    if (status == SOL_OK) status = merge_pairs(&t, &progress);
    progress_end(&progress);
    trainer_free(&t);
    if (status != SOL_OK) bpe_vocabulary_destroy(out);
    return status;
}

void bpe_vocabulary_destroy(struct bpe_vocabulary *v)
{
    free(v->bytes);
    free(v->offsets);
    free(v->rules);
    *v = (struct bpe_vocabulary){0};
}
