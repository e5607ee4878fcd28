#include "support/temp_folder.h"

#include <stdio.h>
#include <stdlib.h>

static char folder[64];

const char *temp_folder(void)
{
    return folder;
}

int temp_folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/sol-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

int temp_folder_remove(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command); /* NOLINT(cert-env33-c): the name is this file's own */
}
