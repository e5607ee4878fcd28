/* What a program sets up before anything else: not for users of the library, whose process it is.
 */
#ifndef BASE_START_H
#define BASE_START_H

/* Opens descriptors 0 to 2 where they are closed, since the next file to be opened would take their
 * place and get what is printed; printing still fails. A file that is mapped and becomes shorter
 * ends the process with a message and exit status 3, and a limit of file sizes (ulimit -f) is an
 * error of the write. Children inherit that SIGXFSZ is ignored unless it is reset. */
void start_process(void);

/* For a server, before it opens anything: the program begins once more, with an allocator that
 * keeps nothing for each thread apart. glibc's threads keep small pieces that were given back, and
 * each holds its page: after a crowd of 1,000 clients 6 MB, and a little more each minute. What
 * they keep is read from the environment before main, and nothing can change it later. An
 * environment that says something of the allocator is left as it is. `argv`: main's. Returns where
 * there is nothing to do or it cannot be done. */
void start_without_thread_caches(char **argv);

#endif
