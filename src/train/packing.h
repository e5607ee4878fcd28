/* Rows of a fixed number of tokens from documents of any length. Rows follow from the order of
 * documents alone.
 *
 * PACKING_BEST_FIT (nanochat's rule; source: its dataloader.py): every row begins with a document.
 * Of at least `buffer` documents, refilled by `refill` at a time, the longest that fits goes into
 * the row, the first of equally long ones; where none fits, the shortest is cut to the space that
 * is left, and its rest is dropped. About a third of all tokens goes that way with web texts and
 * rows of 2048, and nearly all of documents much longer than a row.
 *
 * PACKING_PAD is best fit that cuts no document that fits a row: where none fits the space that is
 * left, the row is filled with a token that is not learnt. Of a document longer than a row the
 * beginning is kept. For conversations.
 *
 * PACKING_STREAM drops nothing: documents follow each other, and a row begins with the last token
 * of the row before it, so that every token but the very first is predicted once. Rows need not
 * begin with a document, and a document that a row's end cuts goes on in the next row. */
#ifndef TRAIN_PACKING_H
#define TRAIN_PACKING_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"
#include "train/data_corpus.h"

enum packing_kind { PACKING_BEST_FIT, PACKING_STREAM, PACKING_PAD };

/* A document, or a part of one, with its tokens; ~id where one is not learnt. */
struct packed_document {
    int32_t *ids; /* malloc'ed */
    size_t count;
    struct corpus_document at;
};

/* The next document with tokens. Who gets it frees its ids. */
typedef enum sol_status (*packing_source)(void *arg, struct packed_document *out);

struct packing_options {
    enum packing_kind kind;
    int64_t row; /* tokens, 2 at least */
    int32_t pad; /* PACKING_PAD: what fills rows */
    size_t buffer, refill;
    packing_source source;
    void *arg;
};

struct packing;

enum sol_status packing_create(const struct packing_options *options, struct packing **out);
void packing_destroy(struct packing *packing); /* takes NULL */

/* The next row. After an error nothing but packing_destroy may follow. */
enum sol_status packing_row(struct packing *packing, int32_t *row);

/* ---- the state between two rows ---- */

struct packing_state {
    size_t documents; /* that are held: the buffer; of a stream, the one being cut, or none */
    size_t used;      /* tokens of a stream's document that rows already have */
    int32_t last;     /* a stream's last token, learnt or not; -1 before its first row */
};
struct packing_state packing_state(const struct packing *packing);
/* Where the documents that are held come from; room for state.documents of them. */
void packing_held(const struct packing *packing, struct corpus_document *out);
/* Of a fresh packing: takes that many documents from the source. SOL_E_ARGUMENT where they do not
 * fit the state. */
enum sol_status packing_restore(struct packing *packing, const struct packing_state *state);

/* Since it was made. */
struct packing_counts {
    uint64_t rows, documents;
    uint64_t tokens, cut; /* of documents taken from the source; of them dropped */
    uint64_t padding;     /* tokens that fill rows */
};
struct packing_counts packing_counts(const struct packing *packing);

#endif
