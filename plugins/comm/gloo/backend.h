// c10d's ProcessGroupGloo as the plugin uses it. Of the plugin's headers the only one that includes c10d's, which cost many
// seconds to compile.
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

// What c10d threw, without the stack of addresses that it adds.
std::string text_of(const std::exception_ptr& thrown);
// As a failure of the contract; `doing` begins its sentence.
gannet::sdk::Failure failure_of(const std::string& doing, const std::string& said);

// c10d counts its operations without a lock: `issuing` is held by whoever starts one.
class BackendMail : public Mail {
 public:
  BackendMail(Backend& backend, std::mutex& issuing) : backend_(backend), issuing_(issuing) {}
  std::unique_ptr<Transfer> send(const void* from, uint64_t bytes, uint32_t to, Lane lane) override;
  std::unique_ptr<Transfer> receive(void* to, uint64_t bytes, uint32_t from, Lane lane) override;

 private:
  Backend& backend_;
  std::mutex& issuing_;
};

// What c10d started, and what remains to do on this rank when it is complete.
struct Launched {
  c10::intrusive_ptr<c10d::Work> work;
  std::function<void()> then = nullptr;
};

// An all_reduce, a broadcast, an all_gather or all_to_all of equal or counted parts, a barrier.
Launched launch(Backend& backend, const Collective& collective);

}  // namespace gannet_gloo
