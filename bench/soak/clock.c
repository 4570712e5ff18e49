/* Preloaded into an instance: its wall clock is off by as many seconds as the file CLOCK_FILE says at that moment. Its
   monotonic clock runs as it should. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *off_by_s;

__attribute__((constructor)) static void open_clock_file(void)
{
    const char *path = getenv("CLOCK_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0)
        return;
    void *shared = mmap(NULL, sizeof *off_by_s, PROT_READ, MAP_SHARED, file, 0);
    if (shared != MAP_FAILED)
        off_by_s = shared;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && off_by_s)
        now->tv_sec += *off_by_s;
    return failed;
}
