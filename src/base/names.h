/* Names of kernels for people. A C++ kernel's name may be 2,000 characters long, and two of them
 * may differ in one template argument: a set is shortened together, so that what differs stays
 * different. */
#ifndef BASE_NAMES_H
#define BASE_NAMES_H

#include <stddef.h>

#include "base/status.h"

enum { NAMES_WIDTH_MIN = 16 };

/* Shortens `n` names to `width` characters each (NAMES_WIDTH_MIN at least) into out[n], each to be
 * freed; after an error all are NULL. A name that fits stays as it is. A longer one loses, as far
 * as needed: "void", its list of arguments and its namespaces; then its middle; where names would
 * become equal by that, what they have in common goes instead; where even that is too long, "~" and
 * digits that stand for the whole name end it. Two of out are equal just where the names are. */
enum sol_status names_shorten(const char *const *names, size_t n, size_t width, char **out);

#endif
