// Adapts the host's key-value store to c10d's Store, through which Gloo exchanges addresses. Every
// key gets the group's prefix.
#pragma once

#include <gannet/abi.h>

#include <algorithm>
#include <chrono>
#include <gannet/sdk.hpp>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace gannet_gloo {

class HostStore : public c10d::Store {
 public:
  HostStore(const gannet_store& store, std::string prefix, std::chrono::milliseconds timeout)
      : Store(timeout), store_(store), prefix_(std::move(prefix)) {}

  c10::intrusive_ptr<Store> clone() override { return c10::make_intrusive<HostStore>(store_, prefix_, timeout_); }

  using Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    call([&](gannet_error* error) { return store_.set(store_.context, full(key).c_str(), value.data(), value.size(), error); });
  }
  std::vector<uint8_t> get(const std::string& key) override {
    const void* bytes = nullptr;
    uint64_t count = 0;
    call([&](gannet_error* error) { return store_.get(store_.context, full(key).c_str(), &bytes, &count, error); });
    auto* first = static_cast<const uint8_t*>(bytes);
    return std::vector<uint8_t>(first, first + count);
  }
  int64_t add(const std::string& key, int64_t value) override {
    int64_t result = 0;
    call([&](gannet_error* error) { return store_.add(store_.context, full(key).c_str(), value, &result, error); });
    return result;
  }
  bool check(const std::vector<std::string>& keys) override {
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
      int32_t exists = 0;
      call([&](gannet_error* error) { return store_.check(store_.context, full(key).c_str(), &exists, error); });
      return exists != 0;
    });
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const auto& key : keys)
      call([&](gannet_error* error) { return store_.wait(store_.context, full(key).c_str(), timeout.count(), error); });
  }
  // The contract's store has neither of these functions, and c10d's Gloo calls neither.
  bool deleteKey(const std::string&) override { return false; }
  int64_t getNumKeys() override { TORCH_CHECK(false, "the host's store does not count its keys"); }

 private:
  std::string full(const std::string& key) const { return prefix_ + key; }

  template <class Call>
  static void call(Call&& function) {
    char message[2048] = "";
    gannet_error error{sizeof(gannet_error), 0, sizeof(message), message};
    const int32_t status = function(&error);
    if (status != GANNET_OK) throw gannet::sdk::Failure(static_cast<gannet_status>(status), message);
  }

  gannet_store store_;
  std::string prefix_;
};

}  // namespace gannet_gloo
