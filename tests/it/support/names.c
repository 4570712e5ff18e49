/* Preloaded into an instance: of names that end in `.silent.test` no name server tells anything for half a minute; names
   that end in `.honest.test` are 127.0.0.1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), of_end = strlen(end);
    return length > of_end && !strcmp(name + length - of_end, end);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    lookup *next = (lookup *)dlsym(RTLD_NEXT, "getaddrinfo");
    if (name && ends_in(name, ".silent.test")) {
        sleep(30);
        return EAI_AGAIN;
    }
    return next(name && ends_in(name, ".honest.test") ? "127.0.0.1" : name, service, hints, found);
}
