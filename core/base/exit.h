#pragma once
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace gannet {

// exit() then runs the handlers and destructors that are registered after this call, flushes, and ends the process without those
// of the libraries that were loaded before: LibTorch's undo the registration of every kernel, a tenth of a second of processor
// time.
inline void skip_destructors_of_libraries() {
  ::on_exit(
      [](int status, void*) {
        std::cout.flush();
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
}

}  // namespace gannet
