/* What http.c and http_fetch.c share. */
#ifndef HUB_HTTP_PRIVATE_H
#define HUB_HTTP_PRIVATE_H

#include <stdbool.h>

#include "hub/curl.h"
#include "hub/http.h"

struct http {
    const struct curl_api *curl;
    void *multi;
    char *token;
    long attempts; /* without a byte, before it is given up */
};

/* An easy handle with everything that all requests have. NULL without memory. */
void *http_request(const struct http *http, const char *url, char error[CURL_ERROR_TEXT]);
/* Whether another attempt may do. */
bool http_may_pass(int result, long code);
/* Nanoseconds to wait before attempt `n`, from 1 on; `asked`: seconds that the server named. */
uint64_t http_pause(long n, long asked);
enum sol_status http_failed(const struct http *http, const char *url, int result, long code,
                            const char *error);

#endif
