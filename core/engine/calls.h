// One thread at a time is in an engine's public calls: who is, and in which. Calls of the same thread nest (a callback of a save
// reads parameters, a checkpointed region calls the engine), and so do those of autograd's threads within a backward.
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
    /// The call goes on: another function leaves it.
    void keep() { calls_ = nullptr; }

   private:
    Calls* calls_;
  };

 private:
  std::atomic<uint64_t> thread_{0};  // thread_number() of the one that is inside; 0: none
  std::atomic<const char*> call_{nullptr};
  int depth_ = 0;  // of that thread, which alone touches it
};

}  // namespace gannet
