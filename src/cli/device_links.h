/* sol device --gpus: what several GPUs can pass to each other. */
#ifndef CLI_DEVICE_LINKS_H
#define CLI_DEVICE_LINKS_H

#include <jansson.h>

#include "base/status.h"
#include "base/table.h"

/* "2", or "all": how many GPUs; SOL_E_UNSUPPORTED with what is needed where there are not so many.
 */
enum sol_status device_links_count(const char *text, int *gpus);
/* What measured links are kept by: the GPUs, their driver, the kernels, NCCL. */
enum sol_status device_links_key(int gpus, size_t most, char key[64]);
enum sol_status device_links_measure(int gpus, double seconds, size_t most, json_t **out);
enum sol_status device_links_print(const json_t *machine, const json_t *links,
                                   enum table_format format);

#endif
