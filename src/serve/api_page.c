/* GET / and /index.html: the page. Anybody may have it; it asks for a key where one is wanted. */
#include <string.h>

#include "serve/api.h"
#include "serve/page.h"

enum sol_status api_page(struct request_context *r)
{
    struct exchange *x = r->exchange;
    const struct page *page = page_get();
    exchange_set_header(x, "Content-Security-Policy", page->policy);
    exchange_set_header(x, "X-Content-Type-Options", "nosniff");
    exchange_set_header(x, "Referrer-Policy", "no-referrer");
    exchange_set_header(x, "ETag", page->etag);
    /* Kept, but asked for again each time: the page is of the version of the server. */
    exchange_set_header(x, "Cache-Control", "no-cache");
    const char *type = "text/html; charset=utf-8", *known = exchange_header(x, "If-None-Match");
    if (known && strstr(known, page->etag))
        exchange_answer_static(x, 304, type, "", 0);
    else
        exchange_answer_static(x, 200, type, page->html, page->length);
    return SOL_OK;
}
