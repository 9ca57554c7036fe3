/* The clock of a machine that is OFFSET_S seconds ahead, as Python programs see it. Others, Ray's
   in C++ among them, keep the right one: they hand absolute times to the kernel, whose clock cannot
   be changed for one namespace. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_python(void *caller) {
    static __thread void *last;
    static __thread int answer;
    Dl_info from;
    if (caller != last) {
        last = caller;
        answer = dladdr(caller, &from) && strstr(basename(from.dli_fname), "python") != NULL;
    }
    return answer;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && is_python(__builtin_return_address(0))) {
        const char *offset = getenv("OFFSET_S");
        now->tv_sec += offset ? atoi(offset) : 0;
    }
    return failed;
}
