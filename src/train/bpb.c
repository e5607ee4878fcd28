#include "train/bpb.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"

enum sol_status bpb_token_bytes(const struct tokenizer *tokenizer, int64_t vocab, int32_t **out)
{
    int64_t known = tokenizer_vocab(tokenizer);
    int32_t *table = calloc((size_t)vocab + 1, sizeof *table);
    *out = table;
    if (!table)
        return status_set(SOL_E_MEMORY, "no memory for the lengths of %lld tokens",
                          (long long)vocab);
    for (int64_t id = 0; id < vocab && id < known; id++)
        if (!tokenizer_is_control(tokenizer, (int32_t)id))
            table[id] = (int32_t)tokenizer_bytes(tokenizer, (int32_t)id).length;
    return SOL_OK;
}

void bpb_add(struct bpb *sum, const int32_t *token_bytes, const int32_t *y, const float *nll,
             int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (y[i] < 0 || token_bytes[y[i]] == 0) continue;
        sum->nats += (double)nll[i];
        sum->bytes += (uint64_t)token_bytes[y[i]];
    }
}

double bpb_value(const struct bpb *sum)
{
    static const double ln2 = 0.693147180559945309417;
    return sum->bytes ? sum->nats / (ln2 * (double)sum->bytes) : (double)INFINITY;
}
