/* A chat in the terminal with the C API of sol; an empty line ends it. MODEL is a file, or what sol
 * pull has fetched.
 *
 *     cc chat.c $(pkg-config --cflags --libs sol) -o chat
 *     ./chat [MODEL [BACKEND]]
 */
#include <stdio.h>
#include <string.h>

#include <sol/chat.h>

static bool show(void *arg, const struct sol_chat_piece *piece)
{
    (void)arg;
    if (piece->begins && piece->part == SOL_CHAT_REASONING) printf("\033[2m"); /* dim */
    printf("%s%s", piece->text, piece->ends ? "\033[0m\n" : "");
    return fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    struct sol_model_params where;
    struct sol_model *model;
    struct sol_chat *chat = NULL;
    char line[4096];
    sol_model_params_init(&where);
    if (argc > 2) where.backend = argv[2];
    bool good = sol_model_open(argc > 1 ? argv[1] : NULL, &where, &model) == SOL_OK &&
                sol_chat_create(model, NULL, &chat) == SOL_OK;
    while (good && printf("> ") && fgets(line, sizeof line, stdin) && line[0] != '\n') {
        line[strcspn(line, "\n")] = 0;
        good = sol_chat_add_user(chat, line) == SOL_OK &&
               sol_chat_reply(chat, show, NULL, NULL) == SOL_OK;
    }
    if (!good) fprintf(stderr, "chat: %s\n", sol_last_error());
    sol_chat_destroy(chat);
    sol_model_close(model);
    return !good;
}
