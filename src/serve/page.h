/* The web page at "/": src/serve/page.html, in the binary. */
#ifndef SERVE_PAGE_H
#define SERVE_PAGE_H

#include <stddef.h>

/* The page, and the headers that it is sent with. All live as long as the program. */
struct page {
    const char *html;
    size_t length;
    char etag[48];
    /* Content-Security-Policy: this script and this style, named by their SHA-256, and requests to
     * the server that the page came from. Nothing else is loaded or run, nothing may frame it, and
     * no text becomes HTML (require-trusted-types-for). */
    char policy[512];
};
const struct page *page_get(void); /* any thread */

#endif
