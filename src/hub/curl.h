/* libcurl as a table of functions, loaded when something is fetched or a server is measured:
 * nothing else needs it, and it brings twenty libraries. Handles are void pointers. */
#ifndef HUB_CURL_H
#define HUB_CURL_H

#include "sol/status.h"

enum { /* of an easy handle */
       CURL_WRITE_DATA = 10001,
       CURL_URL = 10002,
       CURL_RANGE = 10007,
       CURL_ERROR_BUFFER = 10010,
       CURL_POST_DATA = 10015, /* borrowed */
       CURL_USER_AGENT = 10018,
       CURL_HEADERS = 10023,
       CURL_LOW_SPEED_LIMIT = 19,
       CURL_LOW_SPEED_TIME = 20,
       CURL_HEADER_DATA = 10029,
       CURL_FOLLOW = 52,
       CURL_CA_FILE = 10065,
       CURL_MAX_REDIRECTS = 68,
       CURL_FRESH = 74,
       CURL_NO_REUSE = 75,
       CURL_HTTP_VERSION = 84,
       CURL_NO_SIGNAL = 99,
       CURL_PRIVATE = 10103,
       CURL_AUTHENTICATION = 107,
       CURL_CONNECT_TIMEOUT_MS = 156,
       CURL_PROTOCOLS = 181,
       CURL_REDIRECT_PROTOCOLS = 182,
       CURL_BEARER = 10220,
       CURL_WRITE_FUNCTION = 20011,
       CURL_HEADER_FUNCTION = 20079,
       CURL_POST_SIZE = 30120, /* an int64_t */
};
enum { CURL_INFO_CODE = 0x200002, CURL_INFO_PRIVATE = 0x100015, CURL_INFO_CONTENT_TYPE = 0x100012 };
enum { /* of a multi handle */
       CURL_MULTI_TIMER_DATA = 10005,
       CURL_MULTI_SOCKET_DATA = 10002,
       CURL_MULTI_SOCKET_FUNCTION = 20001,
       CURL_MULTI_TIMER_FUNCTION = 20004,
};
enum { CURL_HTTP_1_1 = 2, CURL_SOCKET_TIMER = -1 };
enum {
    CURL_WAIT_IN = 1,
    CURL_WAIT_OUT = 2,
    CURL_WAIT_REMOVE = 4
};                                                           /* what a socket is to wait for */
enum { CURL_IS_IN = 1, CURL_IS_OUT = 2, CURL_IS_ERROR = 4 }; /* what happened to it */
enum { CURL_HTTP = 1, CURL_HTTPS = 2, CURL_AUTH_BEARER = 1 << 6, CURL_GLOBAL_DEFAULT = 3 };
enum { CURL_ERROR_TEXT = 256, CURL_MESSAGE_DONE = 1 };
enum { /* results */
       CURL_E_HOST = 6,
       CURL_E_CONNECT = 7,
       CURL_E_PARTIAL = 18,
       CURL_E_WRITE = 23,
       CURL_E_TIMEOUT = 28,
       CURL_E_TLS = 35,
       CURL_E_NOTHING = 52,
       CURL_E_SEND = 55,
       CURL_E_RECEIVE = 56,
       CURL_E_HTTP2 = 92,
};

struct curl_message {
    int what; /* CURL_MESSAGE_DONE */
    void *easy;
    union {
        void *whatever;
        int result;
    } data;
};

struct curl_api {
#define CURL_FUNCTION(field, symbol, type, parameters) type(*field) parameters;
#include "hub/curl_functions.list"
#undef CURL_FUNCTION
};

/* Loaded once a process and kept; SOL_CURL names another file. SOL_E_UNSUPPORTED where it is
 * missing: what to install. */
enum sol_status curl_load(const struct curl_api **out);

#endif
