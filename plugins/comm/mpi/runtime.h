// The MPI library of the process, and the one thread that calls it.
//
//   Runtime& mpi = Runtime::get();                 initializes MPI, unless the program has
//   mpi.run([&] { ... MPI_Comm_create_group ... });              on the thread, and waits for it
//   auto pending = mpi.start("all_reduce ...", [&] { return std::vector<MPI_Request>{...}; }, [&] { ...once it is over... });
//   pending->wait(1000);
//
// Once a process has called MPI_Init, the runtime lives until the process ends.
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gannet_mpi {

using Requests = std::vector<MPI_Request>;

// Throws sdk::Failure with MPI's text if `code` is an error.
void require(int code, const std::string& doing);

// A collective, or a batch of messages, in flight.
class Pending {
 public:
  // Whether it is over within timeout_ms. Throws sdk::Failure if it failed.
  bool wait(uint64_t timeout_ms);
  bool is_over();

 private:
  friend class Runtime;
  void finish(std::exception_ptr failure);
  std::string doing_;
  std::function<Requests()> issue_;
  std::function<void()> then_;
  Requests requests_;   // of the thread
  uint64_t owner_ = 0;  // the Comm whose abort() ends it
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;  // this and failure_ are guarded by mutex_
  std::exception_ptr failure_;
};

class Runtime {
 public:
  static Runtime& get();
  uint64_t new_owner();  // a number for a Comm

  // `issue` starts the operations and `then` runs when all are complete, both on the thread.
  std::shared_ptr<Pending> start(uint64_t owner, const std::string& doing, std::function<Requests()> issue,
                                 std::function<void()> then = {});
  // Runs `body` on the thread. Throws GANNET_TIMEOUT if it is not over in time: it owns what it uses,
  // because MPI may be in it for ever.
  void run(const std::string& doing, uint64_t timeout_ms, std::function<void()> body);
  // Ends everything that `owner` has in flight with an error. MPI may still write to the buffers of
  // an operation that has begun, so the process should end.
  void abort(uint64_t owner);

 private:
  Runtime();
  void serve();
  bool advance(Pending& pending);  // whether it is over

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Pending>> queued_;    // guarded by mutex_
  std::vector<uint64_t> aborted_;                  // guarded by mutex_
  std::list<std::shared_ptr<Pending>> in_flight_;  // of the thread, as abandoned_
  std::list<std::shared_ptr<Pending>> abandoned_;  // aborted after they began: MPI may still use their requests and buffers
  std::thread thread_;
  uint64_t owners_ = 0;  // guarded by mutex_
  bool stop_ = false;
};

}  // namespace gannet_mpi
