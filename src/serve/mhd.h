/* libmicrohttpd as a table of functions, loaded when a server starts: nothing else needs it.
 * Handles are void pointers. */
#ifndef SERVE_MHD_H
#define SERVE_MHD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sol/status.h"

struct sockaddr;

enum { MHD_NO = 0, MHD_YES = 1 };
enum { /* flags of a daemon */
       MHD_USE_LOG = 1,
       MHD_USE_TLS = 2,
       MHD_USE_OWN_THREAD = 8,
       MHD_USE_EPOLL = 512,
       MHD_USE_RESUME = 8192 | 1024,
};
enum { /* options of a daemon */
       MHD_OPTION_END = 0,
       MHD_OPTION_MEMORY = 1,      /* size_t, of a connection */
       MHD_OPTION_CONNECTIONS = 2, /* unsigned */
       MHD_OPTION_TIMEOUT = 3,     /* unsigned, seconds */
       MHD_OPTION_COMPLETED = 4,   /* mhd_completed_fn, void * */
       MHD_OPTION_PER_ADDRESS = 5, /* unsigned */
       MHD_OPTION_URI = 7,         /* mhd_uri_fn, void * */
       MHD_OPTION_TLS_KEY = 8,     /* const char * */
       MHD_OPTION_TLS_CERT = 9,    /* const char * */
       MHD_OPTION_LISTEN_SOCKET = 12,
       MHD_OPTION_LOGGER = 13,     /* void (*)(void *, const char *, va_list), void * */
       MHD_OPTION_STACK = 19,      /* size_t */
       MHD_OPTION_CONNECTION = 27, /* mhd_connection_fn, void * */
};
enum { MHD_HEADER = 1, MHD_QUERY = 8 };
enum { MHD_INFO_ADDRESS = 2, MHD_INFO_FD = 6, MHD_INFO_SOCKET_CONTEXT = 7 };
enum { MHD_CONNECTION_BEGINS = 0, MHD_CONNECTION_ENDS = 1 };
enum { MHD_COMPLETED_OK = 0 };
enum { MHD_STATIC = 0, MHD_COPY = 2 }; /* whose a buffer is */
enum { MHD_READER_END = -1, MHD_READER_FAULT = -2 };
enum { MHD_FEATURE_TLS = 2 };
#define MHD_SIZE_UNKNOWN UINT64_MAX

union mhd_info {
    int fd;
    const struct sockaddr *address;
    void *context;
};

typedef int (*mhd_accept_fn)(void *arg, const struct sockaddr *address, unsigned length);
typedef int (*mhd_request_fn)(void *arg, void *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *length,
                              void **request);
typedef void (*mhd_completed_fn)(void *arg, void *connection, void **request, int how);
typedef void (*mhd_connection_fn)(void *arg, void *connection, void **context, int what);
typedef void *(*mhd_uri_fn)(void *arg, const char *uri, void *connection);
typedef int (*mhd_value_fn)(void *arg, int kind, const char *name, const char *value);
typedef ssize_t (*mhd_reader_fn)(void *arg, uint64_t at, char *to, size_t most);

struct mhd_api {
#define MHD_FUNCTION(field, symbol, type, parameters) type(*field) parameters;
#include "serve/mhd_functions.list"
#undef MHD_FUNCTION
};

/* Loaded once a process and kept; SOL_MICROHTTPD names another file. SOL_E_UNSUPPORTED where it is
 * missing: what to install. */
enum sol_status mhd_load(const struct mhd_api **out);

#endif
