/* Preloaded into an instance: its wall clock is off by CLOCK_OFF_BY_S seconds. Its monotonic clock runs as it should. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    const char *off_by = getenv("CLOCK_OFF_BY_S");
    if (!failed && clock == CLOCK_REALTIME && off_by)
        now->tv_sec += atol(off_by);
    return failed;
}
