// Admits one thread at a time to an engine's public calls, and records the thread and the call.
// Calls of the same thread nest (a save's callback reads parameters, a checkpointed region calls
// the engine), and so do calls of autograd's threads within a backward.
//
//   const Calls::Entered entered(impl.calls, "step");   // Error(kOrder) names the call that another thread is in
#pragma once

#include <atomic>
#include <cstdint>

namespace gannet {

class Calls {
 public:
  void enter(const char* call);
  void leave() noexcept;

  class Entered {
   public:
    Entered(Calls& calls, const char* call) : calls_(&calls) { calls.enter(call); }
    ~Entered() {
      if (calls_) calls_->leave();
    }
    Entered(const Entered&) = delete;
    /// Stays in the call after this scope: another function leaves it.
    void keep() { calls_ = nullptr; }

   private:
    Calls* calls_;
  };

 private:
  std::atomic<uint64_t> thread_{0};  // thread_number() of the thread inside; 0: none
  std::atomic<const char*> call_{nullptr};
  int depth_ = 0;  // nested calls of that thread, the only one that accesses it
};

}  // namespace gannet
