// The plugin's wrapper around c10d's ProcessGroupGloo. It is the plugin's only header that includes
// that class's own header, which takes many seconds to compile.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "mail.h"

namespace gannet_gloo {

class Backend : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void close() {
    for (auto& context : contexts_) context->closeConnections();
  }
};

c10::intrusive_ptr<Backend> connect(const GroupOptions& options);

// Returns the text of an exception from c10d, without the backtrace that c10d adds.
std::string text_of(const std::exception_ptr& thrown);
// Converts such text to a Failure for a timeout or a lost peer; its message starts with `doing`.
gannet::sdk::Failure failure_of(const std::string& doing, const std::string& said);

// c10d counts its operations without a lock, so every start of an operation holds `issuing`.
class BackendMail : public Mail {
 public:
  BackendMail(Backend& backend, std::mutex& issuing) : backend_(backend), issuing_(issuing) {}
  std::unique_ptr<Transfer> send(const void* from, uint64_t bytes, uint32_t to, Lane lane) override;
  std::unique_ptr<Transfer> receive(void* to, uint64_t bytes, uint32_t from, Lane lane) override;

 private:
  Backend& backend_;
  std::mutex& issuing_;
};

// An operation started by c10d, and what this rank does once it completes.
struct LaunchedOperation {
  c10::intrusive_ptr<c10d::Work> work;
  std::function<void()> then = nullptr;
};

// Starts an all_reduce, a broadcast, an all_gather or an all_to_all of equal or counted parts, or a
// barrier.
LaunchedOperation launch(Backend& backend, const Collective& collective);

}  // namespace gannet_gloo
