/* The handlers of routes.list. */
#ifndef SERVE_API_H
#define SERVE_API_H

#include "serve/server.h"

#define ROUTE(method, path, handler, need) enum sol_status handler(struct request_context *r);
#include "serve/routes.list"
#undef ROUTE

#endif
