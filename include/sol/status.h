/* Status codes of every fallible call. 0 is success; the text that explains a failure is kept per
 * thread and read with sol_last_error(). */
#ifndef SOL_STATUS_H
#define SOL_STATUS_H

/* What the shared library exports; everything else in it is hidden. */
#if defined(__GNUC__)
#define SOL_API __attribute__((visibility("default")))
#else
#define SOL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum sol_status {
    SOL_OK = 0,
    SOL_E_ARGUMENT,    /* the caller asked for something that makes no sense */
    SOL_E_IO,          /* the operating system refused: open, read, write, map */
    SOL_E_FORMAT,      /* a file or text is damaged or hostile */
    SOL_E_UNSUPPORTED, /* well-formed, but not served here: architecture, type, instruction set */
    SOL_E_MEMORY,      /* an allocation failed, or a model would not fit */
    SOL_E_MISMATCH,    /* a result differs from its reference beyond the tolerance */
    SOL_E_INTERRUPTED, /* the user stopped the work */
    SOL_E_DEVICE,      /* a GPU or its driver failed */
    SOL_E_INTERNAL,    /* a bug in sol */
    SOL_STATUS_COUNT
};

/* A short fixed name, "format" for SOL_E_FORMAT. Never NULL. */
SOL_API const char *sol_status_name(enum sol_status status);

/* What went wrong in this thread's last failed call: what, with what, and what to do about it.
 * Valid until the next failing call in this thread; "" when nothing failed yet. */
SOL_API const char *sol_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
