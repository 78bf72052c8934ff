#include "base/thread_number.h"

#include <atomic>

namespace gannet {

uint64_t thread_number() noexcept {
  static std::atomic<uint64_t> last{0};
  static thread_local const uint64_t mine = ++last;
  return mine;
}

}  // namespace gannet
