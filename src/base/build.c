#include "base/build.h"

#ifndef SOL_COMMIT
#define SOL_COMMIT ""
#endif

const char *build_commit(void)
{
    return SOL_COMMIT;
}
