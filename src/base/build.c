#include "base/build.h"

#include "sol/sol.h"

#ifndef SOL_COMMIT
#define SOL_COMMIT ""
#endif

const char *sol_version(void)
{
    return SOL_VERSION;
}

const char *build_commit(void)
{
    return SOL_COMMIT;
}
