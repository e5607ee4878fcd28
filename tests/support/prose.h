/* The prose of a text that no model was trained on. */
#ifndef TESTS_SUPPORT_PROSE_H
#define TESTS_SUPPORT_PROSE_H

#include <stddef.h>

/* What `path` has behind its title and its first heading, two paragraphs: a few words of capitals
 * would rule the mean of few tokens. All of it where there are no three paragraphs; of long files
 * what fits into `room`. NULL: no such file. */
const char *prose_read(const char *path, char *room, size_t size, size_t *length);

#endif
