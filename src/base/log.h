/* Diagnostics on stderr. Results go to stdout and never through here. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level); /* default LOG_WARN */
/* The same warning is printed once. */
void log_write(enum log_level level, const char *fmt, ...) SOL_PRINTF(2, 3);

#define LOG_WARN(...)  log_write(LOG_WARN, __VA_ARGS__)
#define LOG_INFO(...)  log_write(LOG_INFO, __VA_ARGS__)
#define LOG_DEBUG(...) log_write(LOG_DEBUG, __VA_ARGS__)

#endif
