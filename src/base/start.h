/* What a program sets up before anything else: not for users of the library, whose process it is.
 */
#ifndef BASE_START_H
#define BASE_START_H

/* Opens descriptors 0 to 2 where they are closed, since the next file to be opened would take their
 * place and get what is printed; printing still fails. A file that is mapped and becomes shorter
 * ends the process with a message and exit status 3, and a limit of file sizes (ulimit -f) is an
 * error of the write. Children inherit that SIGXFSZ is ignored unless it is reset. */
void start_process(void);

#endif
