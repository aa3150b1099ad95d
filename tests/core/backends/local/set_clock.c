/* The wall clock of a process, set by a test: loaded before libc, it adds the step in SET_CLOCK_FILE (a double,
   read anew each time) to every answer. With SET_CLOCK_ONLY it does so in programs with this text in their
   command line alone. The monotonic clocks are left alone, as when a machine's clock is set. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile double *step_s = NULL;

static int concerns_us(const char *only)
{
    char text[4096];
    int file = open("/proc/self/cmdline", O_RDONLY);
    ssize_t n = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    for (ssize_t i = 0; i < n; i++)
        if (!text[i])
            text[i] = ' ';
    text[n < 0 ? 0 : n] = 0;
    return strstr(text, only) != NULL;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SET_CLOCK_FILE"), *only = getenv("SET_CLOCK_ONLY");
    if (!path || (only && !concerns_us(only)))
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *shared = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (shared != MAP_FAILED)
        step_s = shared;
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int code = (int)syscall(SYS_clock_gettime, clock, at);
    if (!code && step_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        at->tv_sec += (time_t)floor(*step_s);
    return code;
}

int gettimeofday(struct timeval *at, void *zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}
