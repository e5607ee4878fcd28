/* How conversations begin: the system message that the model was trained with. */
#ifndef CHAT_OPENING_H
#define CHAT_OPENING_H

#include "chat/conversation.h"

enum { CHAT_DATE_SIZE = 11 }; /* "2026-11-24" */

/* Today, by the machine's clock and time zone. */
void chat_today(char date[CHAT_DATE_SIZE]);

/* Adds the system message: identity, knowledge cutoff, the date, medium effort, the three channels.
 * `date` NULL: conversation_pin_date gives it later. */
enum sol_status conversation_open(struct conversation *c, const char *date);

#endif
