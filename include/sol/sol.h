/* The C API of sol: open a model, turn text into tokens and back, evaluate tokens, sample.
 *
 *     struct sol_model *model;
 *     struct sol_session *session;
 *     if (sol_model_open(NULL, NULL, &model) != SOL_OK) puts(sol_last_error());
 *
 * examples/continue.c is a whole program. Link with `pkg-config --cflags --libs sol` (--static for
 * libsol.a). sol/grouped_gemm.h has products of block-scaled matrices, for programs that use CUDA
 * themselves.
 *
 * Errors. Calls that can fail return enum sol_status; SOL_OK is 0. sol_last_error() then says what
 * was wrong, with what, and what to do, for the calling thread. A failed call changes nothing
 * unless it says so, and a failed create or open leaves NULL in *out.
 *
 * Ownership. What _open and _create hand out is released with _close and _destroy, which take NULL.
 * Texts and arrays that are passed in are not kept.
 *
 * Threads. A model is read-only: any number of threads and sessions may share it. A session or a
 * sampler is used by one thread at a time. A session computes on its own threads, on a GPU on a
 * stream of its own. A thread that calls the CUDA driver too leaves the context as sol left it.
 *
 * Stability. Before version 1 any release may change this interface; the library's SOVERSION does
 * so with it. */
#ifndef SOL_SOL_H
#define SOL_SOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0", of the library that runs. */
SOL_API const char *sol_version(void);

/* ---- model ----------------------------------------------------------------------------------- */

struct sol_model;

struct sol_model_params {
    /* Where its sessions compute, as sol run --backend: "cpu" (or NULL), "cuda", "cuda:1" for the
     * second GPU, or "auto": a GPU where there is one that can and has room, else the CPU. */
    const char *backend;
};
/* The CPU. */
SOL_API void sol_model_params_init(struct sol_model_params *params);

/* `source` is a file or folder (GGUF, safetensors), the name of a model that `sol pull` has fetched
 * ("openai/gpt-oss-20b"), NULL or "builtin" for the small model inside the library, or
 * "synth:gpt-oss-20b" and the like for random weights, which come without a vocabulary. Files are
 * checked whole: a damaged one is SOL_E_FORMAT, another architecture SOL_E_UNSUPPORTED. `params`
 * may be NULL for the defaults. On a GPU the weights go there at once, for all sessions: no such
 * GPU, or one that `sol verify` has to see first, is SOL_E_UNSUPPORTED, no room SOL_E_MEMORY. */
SOL_API enum sol_status sol_model_open(const char *source, const struct sol_model_params *params,
                                       struct sol_model **out);
/* No session may use the model any more. */
SOL_API void sol_model_close(struct sol_model *model);

struct sol_model_info {
    int64_t layers, hidden, heads, kv_heads, head_dim;
    int64_t experts, experts_used; /* all, and those that one token uses */
    int64_t vocab;                 /* logits a position has */
    int64_t context;               /* positions that the model was made for */
    int64_t parameters;
    size_t weight_bytes;
    bool tokenizer;     /* whether text can be encoded and decoded */
    const char *device; /* "cpu", or the GPU's name; the model's */
};
SOL_API void sol_model_get_info(const struct sol_model *model, struct sol_model_info *info);

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Encodes `length` bytes of text, any bytes. *count is the number of tokens in all; the first
 * `capacity` of them are written, so that a call with capacity 0 (and ids NULL) measures. With
 * `special`, names of control tokens such as <|start|> in the text become these tokens; without,
 * they are text like any other. No token is added in front. SOL_E_UNSUPPORTED without a vocabulary.
 */
SOL_API enum sol_status sol_model_encode(const struct sol_model *model, const char *text,
                                         size_t length, bool special, int32_t *ids, size_t capacity,
                                         size_t *count);

/* The bytes of `n` tokens; control tokens give their names. *length is the number of bytes in all;
 * the first `capacity` of them are written, without a terminating zero. A token may end inside of a
 * UTF-8 character. SOL_E_ARGUMENT for an id that is no token, SOL_E_UNSUPPORTED without a
 * vocabulary.
 */
SOL_API enum sol_status sol_model_decode(const struct sol_model *model, const int32_t *ids,
                                         size_t n, char *text, size_t capacity, size_t *length);

/* Whether a model says with this token that it has finished. False without a vocabulary. */
SOL_API bool sol_model_is_stop(const struct sol_model *model, int32_t id);

/* The token that every text of this model begins with, or -1 when there is none to be put there. */
SOL_API int32_t sol_model_begin(const struct sol_model *model);

/* ---- session --------------------------------------------------------------------------------- */

/* One text being read and written: its keys and values, and the threads that compute. */
struct sol_session;

struct sol_session_params {
    int64_t context; /* positions to make room for */
    int64_t batch;   /* tokens that are processed at once; longer input is split. 0: what is fast */
    int threads;     /* 0: every core */
    bool exact;      /* float32 activations instead of 8 bits within matrix products */
};
/* context 4096, the batch that is fast (512, on a GPU 2048), every core, not exact. */
SOL_API void sol_session_params_init(struct sol_session_params *params);

/* `params` may be NULL for the defaults. The model must outlive the session. */
SOL_API enum sol_status sol_session_create(struct sol_model *model,
                                           const struct sol_session_params *params,
                                           struct sol_session **out);
SOL_API void sol_session_destroy(struct sol_session *session);

/* Appends `n` tokens, at least one, to the session and computes the logits of the last.
 * SOL_E_ARGUMENT, and nothing changed, for a token outside the vocabulary or more tokens than the
 * context has room for. */
SOL_API enum sol_status sol_session_eval(struct sol_session *session, const int32_t *ids, size_t n);

/* The logits of the last token, [vocab]: what comes next, as log probabilities up to a constant.
 * Valid until the session is used again; NULL before the first eval and after a reset. */
SOL_API const float *sol_session_logits(const struct sol_session *session);

SOL_API int64_t sol_session_position(const struct sol_session *session); /* tokens held */
SOL_API void sol_session_reset(struct sol_session *session);             /* forgets them */

/* ---- sampling -------------------------------------------------------------------------------- */

struct sol_sampler;

struct sol_sampler_params {
    double temperature; /* 0: the likeliest token each time */
    int64_t top_k;      /* only the likeliest so many; 0: all */
    double top_p;       /* only the likeliest that reach this share together; 1: all */
    double min_p;       /* only tokens at least so many times as likely as the likeliest; 0: all */
    uint64_t seed;      /* the same seed, logits and settings give the same tokens everywhere */
    bool control;       /* control tokens may be chosen; those that stop always may */
};
/* temperature 1, everything else off, seed 0. */
SOL_API void sol_sampler_params_init(struct sol_sampler_params *params);

/* `params` may be NULL for the defaults. The model is not used after the call. */
SOL_API enum sol_status sol_sampler_create(const struct sol_model *model,
                                           const struct sol_sampler_params *params,
                                           struct sol_sampler **out);
SOL_API void sol_sampler_destroy(struct sol_sampler *sampler);

/* Draws the next token from logits[vocab]. */
SOL_API enum sol_status sol_sampler_next(struct sol_sampler *sampler, const float *logits,
                                         int32_t *id);

#ifdef __cplusplus
}
#endif

#endif
