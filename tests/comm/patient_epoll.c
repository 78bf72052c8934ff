/* Loaded before libc by the tests (CMakePresets.json): epoll_wait that pauses a caller which polls.
 *
 * The event loop of LibTorch's Gloo finds a message readable, again and again, for as long as nobody has asked for it. With more
 * ranks than cores it takes the processor from the very rank that would ask: half of the time of tests on ranks. A loop that gets
 * events without end is paused for 50 us a call; one that waits for its events is not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

enum { kQuickNs = 20000, kQuickCalls = 16, kPauseNs = 50000 };

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int epoll_wait(int epoll, struct epoll_event* events, int capacity, int timeout) {
  static int (*libc_epoll_wait)(int, struct epoll_event*, int, int);
  static __thread int64_t last_ns;
  static __thread int quick_calls;
  if (!libc_epoll_wait) *(void**)&libc_epoll_wait = dlsym(RTLD_NEXT, "epoll_wait");
  const int count = libc_epoll_wait(epoll, events, capacity, timeout);
  const int64_t ns = now_ns();
  quick_calls = count > 0 && ns - last_ns < kQuickNs ? quick_calls + 1 : 0;
  last_ns = ns;
  if (quick_calls > kQuickCalls) {
    const struct timespec pause = {0, kPauseNs};
    nanosleep(&pause, 0);
    last_ns = now_ns();
  }
  return count;
}
