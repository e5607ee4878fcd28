/* Facts about the machine that a comparison rests on, taken before and after it. */
#ifndef COMPARE_SURROUNDINGS_H
#define COMPARE_SURROUNDINGS_H

#include <stddef.h>

enum { SURROUNDINGS_FACTS_MAX = 16 };

struct surroundings {
    struct {
        char name[48], value[256];
    } facts[SURROUNDINGS_FACTS_MAX];
    size_t count;
};

/* Processor, cores that are on, frequency governor and limits, CPU quota, kernel; and of each
 * command the file that its first word names. What cannot be read is left out. */
void surroundings_take(const char *const commands[2], struct surroundings *out);

/* The index of the first fact that changed, -1 when none did. */
int surroundings_changed(const struct surroundings *before, const struct surroundings *after);

#endif
