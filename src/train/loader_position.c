/* Positions as JSON:
 *   {"packing": "best-fit", "buffer": 1000, "refill": 128, "corpus": "hash in hex", "row": rows
 * made, "epoch": 1, "document": documents begun in the epoch, "at": [file, offset, goes on with a
 * document], "held": [[file, offset, size, begins a document], ...], "used": 0, "last": -1}
 * Documents are named by the places of their files; of a stream, "used" tokens of the one that is
 * held are in rows already, and "last" is the token that begins the next row. */
#include "train/loader_position.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

static const char *const packing_names[] = {"best-fit", "stream", "pad"}; /* as enum packing_kind */

enum { HASH_TEXT = 17 };

static void hash_text(const struct corpus *corpus, char text[HASH_TEXT])
{
    snprintf(text, HASH_TEXT, "%016" PRIx64, corpus_info(corpus).hash);
}

static json_t *held_json(const struct loader_place *place)
{
    json_t *list = json_array();
    for (size_t i = 0; i < place->state.documents; i++) {
        const struct corpus_document *d = &place->held[i];
        json_t *item = json_pack("[I, I, I, b]", (json_int_t)d->file, (json_int_t)d->offset,
                                 (json_int_t)d->size, (int)d->first);
        if (!list || json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

enum sol_status loader_place_write(const struct loader_place *place, const struct loader_data *data,
                                   json_t **out)
{
    char hash[HASH_TEXT];
    hash_text(data->corpus, hash);
    const struct corpus_cursor *next = &place->next;
    *out = json_pack("{s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:[I, I, b], s:o, s:I, s:i}", "packing",
                     packing_names[data->packing], "buffer", (json_int_t)data->buffer, "refill",
                     (json_int_t)data->refill, "corpus", hash, "row", (json_int_t)place->row,
                     "epoch", (json_int_t)next->epoch, "document", (json_int_t)next->document, "at",
                     (json_int_t)next->file, (json_int_t)next->offset, (int)next->inside, "held",
                     held_json(place), "used", (json_int_t)place->state.used, "last",
                     (int)place->state.last);
    return *out ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for the position of the data");
}

static enum sol_status damaged(const char *what)
{
    return status_set(SOL_E_FORMAT, "the position of the data is damaged: %s", what);
}

static enum sol_status check_data(const json_t *from, const struct loader_data *data)
{
    const char *packing, *corpus;
    char hash[HASH_TEXT];
    json_int_t buffer, refill;
    if (json_unpack((json_t *)(uintptr_t)from, "{s:s, s:s, s:I, s:I}", "packing", &packing,
                    "corpus", &corpus, "buffer", &buffer, "refill", &refill) != 0)
        return damaged("packing, corpus, buffer or refill");
    hash_text(data->corpus, hash);
    if (strcmp(corpus, hash) != 0)
        return status_set(
            SOL_E_ARGUMENT,
            "the position is one of other data: files, their sizes, the vocabulary or "
            "what is for validation have changed");
    if (strcmp(packing, packing_names[data->packing]) != 0)
        return status_set(SOL_E_ARGUMENT, "the position is one of rows packed by %.20s, not %s",
                          packing, packing_names[data->packing]);
    if (data->packing != PACKING_STREAM &&
        (buffer != (json_int_t)data->buffer || refill != (json_int_t)data->refill))
        return status_set(SOL_E_ARGUMENT,
                          "the position is one of rows packed from %lld documents, refilled by "
                          "%lld, not %zu and %zu",
                          (long long)buffer, (long long)refill, data->buffer, data->refill);
    return SOL_OK;
}

static enum sol_status read_held(const json_t *list, const struct corpus *corpus,
                                 struct loader_place *place)
{
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        json_int_t file, offset, size;
        int first;
        if (json_unpack((json_t *)(uintptr_t)item, "[I, I, I, b!]", &file, &offset, &size,
                        &first) != 0 ||
            offset < 0 || size < 0)
            return damaged("a document that is held");
        struct corpus_document *d = &place->held[i];
        *d = (struct corpus_document){file, (uint64_t)offset, (uint64_t)size, first != 0};
        struct corpus_cursor begin = {.file = file, .offset = d->offset, .epoch = 1}, end = begin;
        end.offset += d->size;
        if (!corpus_holds(corpus, &begin) || !corpus_holds(corpus, &end))
            return damaged("a document that is held");
    }
    return SOL_OK;
}

enum sol_status loader_place_read(const json_t *from, const struct loader_data *data,
                                  size_t capacity, struct loader_place *place)
{
    json_int_t row, epoch, document, file, offset, used;
    int inside, last;
    json_t *held;
    SOL_TRY(check_data(from, data));
    if (json_unpack((json_t *)(uintptr_t)from, "{s:I, s:I, s:I, s:[I, I, b!], s:o, s:I, s:i}",
                    "row", &row, "epoch", &epoch, "document", &document, "at", &file, &offset,
                    &inside, "held", &held, "used", &used, "last", &last) != 0)
        return damaged("row, epoch, document, at, held, used or last");
    if (row < 0 || epoch < 1 || document < 0 || offset < 0 || used < 0 || last < -1 ||
        last >= corpus_info(data->corpus).vocab)
        return damaged("a number that is none");
    if (!json_is_array(held) || json_array_size(held) > capacity)
        return damaged("the documents that are held");
    place->row = (uint64_t)row;
    place->next = (struct corpus_cursor){file, (uint64_t)offset, inside != 0, (uint64_t)document,
                                         (uint64_t)epoch};
    place->state = (struct packing_state){json_array_size(held), (size_t)used, (int32_t)last};
    if (!corpus_holds(data->corpus, &place->next)) return damaged("at");
    return read_held(held, data->corpus, place);
}
