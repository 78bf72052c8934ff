// The calls that the nvme plugin makes, which a test can make fail. The program exports functions of these names, and the
// dynamic linker prefers them to the libraries' own.
//
//   FaultyCalls faults;
//   faults.fail("fallocate", ENOSPC);
//   faults.on_event([](io_event& event) { event.res = static_cast<unsigned long>(-EIO); });
#pragma once

#include <libaio.h>

#include <functional>
#include <string>

namespace gannet::test {

class FaultyCalls {
 public:
  FaultyCalls() = default;
  ~FaultyCalls();  // everything works again
  FaultyCalls(const FaultyCalls&) = delete;

  // The next `times` calls fail with this errno: mkdir, pwrite, fallocate, io_setup, io_submit, io_getevents.
  void fail(const std::string& call, int code, int times = 1 << 30);
  // Sees each completion before the plugin does.
  void on_event(std::function<void(io_event&)> change);
  // io_submit takes at most so many at a time.
  void submit_at_most(long count);
};

}  // namespace gannet::test
