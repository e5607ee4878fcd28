/* Names of C++ kernels as a person wrote them. */
#ifndef TRACE_DEMANGLE_H
#define TRACE_DEMANGLE_H

#include <stddef.h>

/* The readable form of a mangled name ("_Z..."), to be freed; NULL when it is not mangled, or the
 * C++ runtime library, which knows how, is not on this machine. */
char *demangle(const char *name, size_t length);

#endif
