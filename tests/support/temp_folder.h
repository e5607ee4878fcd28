/* A folder of the test's own below /tmp. Making and removing it are fixtures of cmocka, or are
 * called by them. */
#ifndef TESTS_SUPPORT_TEMP_FOLDER_H
#define TESTS_SUPPORT_TEMP_FOLDER_H

const char *temp_folder(void); /* its path, while it is there */

/* 0 where it worked; `state` is not looked at. */
int temp_folder_make(void **state);
int temp_folder_remove(void **state); /* with all that is in it */

#endif
