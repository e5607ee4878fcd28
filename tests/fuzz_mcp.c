/* Lines for sol mcp, as they come from a client. Whatever they hold: every answer is one line of
 * JSON-RPC, nothing is started. */
#include "serve/mcp.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli/cli.h"
#include "support/fuzz.h"

static const struct command_spec *find(const char *name)
{
    const struct command *command = cli_find(name);
    return command ? command->spec : NULL;
}

static void check(void *to, const char *message, size_t size)
{
    (void)to;
    json_t *json = json_loadb(message, size, 0, NULL);
    const char *version = json_string_value(json_object_get(json, "jsonrpc"));
    bool good = version && strcmp(version, "2.0") == 0 && json_object_get(json, "id") &&
                !json_object_get(json, "result") == !!json_object_get(json, "error") &&
                memchr(message, '\n', size) == message + size - 1;
    if (!good) abort();
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_server *server;
    struct mcp_params params = {
        .version = "0", .find = find, .allow_commands = true, .write = check};
    if (mcp_server_create(&params, &server) != SOL_OK) return 0;
    while (size) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t length = end ? (size_t)(end - data) : size;
        mcp_server_line(server, (const char *)data, length);
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
    if (mcp_server_calls(server)) abort();
    mcp_server_destroy(server);
    return 0;
}
