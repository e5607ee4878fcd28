#include "base/notes.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { NAMED = 6 };

struct note {
    char *text, *about[NAMED];
    size_t count; /* that it is about */
};

static enum sol_status add_subject(struct note *note, const char *about)
{
    for (size_t i = 0; i < note->count && i < NAMED; i++)
        if (strcmp(note->about[i], about) == 0) return SOL_OK;
    if (note->count < NAMED && !(note->about[note->count] = strdup(about)))
        return status_set(SOL_E_MEMORY, "no memory for a note");
    note->count++;
    return SOL_OK;
}

enum sol_status notes_add(struct notes *notes, const char *about, const char *text)
{
    size_t i = 0;
    while (i < notes->count && strcmp(notes->items[i].text, text) != 0) i++;
    if (i == notes->count) {
        SOL_TRY(array_grow(&notes->items, notes->count, &notes->capacity, sizeof *notes->items,
                           "notes"));
        notes->items[i] = (struct note){.text = strdup(text)};
        if (!notes->items[i].text) return status_set(SOL_E_MEMORY, "no memory for a note");
        notes->count++;
    }
    return about ? add_subject(&notes->items[i], about) : SOL_OK;
}

void notes_print(const struct notes *notes, const char *before, FILE *to)
{
    for (size_t i = 0; i < notes->count; i++) {
        const struct note *n = &notes->items[i];
        fprintf(to, "%s%s", before, n->text);
        for (size_t k = 0; k < n->count && k < NAMED; k++)
            fprintf(to, "%s%s", k ? "; " : " (", n->about[k]);
        if (n->count > NAMED) fprintf(to, " and %zu more", n->count - NAMED);
        fputs(n->count ? ")\n" : "\n", to);
    }
}

void notes_free(struct notes *notes)
{
    for (size_t i = 0; i < notes->count; i++) {
        free(notes->items[i].text);
        for (size_t k = 0; k < NAMED; k++) free(notes->items[i].about[k]);
    }
    free(notes->items);
    *notes = (struct notes){.items = NULL};
}
