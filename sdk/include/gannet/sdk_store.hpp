/// The ranks' key-value store (gannet_store) for plugins: functions that throw Failure.
///
///   const gannet::sdk::Store store(rendezvous.store);
///   store.set("mail/address", "10.0.0.3:4000");
///   const std::string address = store.get("mail/address");      waits for the key
#pragma once

#include <gannet/abi.h>

#include <gannet/sdk_errors.hpp>
#include <string>

namespace gannet::sdk {

class Store {
 public:
  explicit Store(const gannet_store* store) : store_(store) {}
  explicit operator bool() const { return store_ != nullptr; }

  void set(const std::string& key, const std::string& value) const {
    call([&](gannet_error* error) { return store_->set(store_->context, key.c_str(), value.data(), value.size(), error); });
  }
  /// Waits for the key, for at most the store's time-out.
  std::string get(const std::string& key) const {
    const void* bytes = nullptr;
    uint64_t count = 0;
    call([&](gannet_error* error) { return store_->get(store_->context, key.c_str(), &bytes, &count, error); });
    return {static_cast<const char*>(bytes), count};
  }
  /// Throws Failure(GANNET_TIMEOUT) if no rank has set the key in time.
  void wait(const std::string& key, uint64_t timeout_ms) const {
    call([&](gannet_error* error) { return store_->wait(store_->context, key.c_str(), timeout_ms, error); });
  }
  bool has(const std::string& key) const {
    int32_t exists = 0;
    call([&](gannet_error* error) { return store_->check(store_->context, key.c_str(), &exists, error); });
    return exists != 0;
  }
  int64_t add(const std::string& key, int64_t amount) const {
    int64_t sum = 0;
    call([&](gannet_error* error) { return store_->add(store_->context, key.c_str(), amount, &sum, error); });
    return sum;
  }

 private:
  template <class Call>
  static void call(Call&& function) {
    char text[2048] = "";
    gannet_error error{sizeof(gannet_error), 0, sizeof(text), text};
    if (const int32_t status = function(&error); status != GANNET_OK) throw Failure(static_cast<gannet_status>(status), text);
  }
  const gannet_store* store_;
};

}  // namespace gannet::sdk
