// The ranks' key-value store: c10d's TCPStore, which rank 0 serves, with a prefix of our own on every key.
#pragma once

#include <gannet/abi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace gannet::control {

class Store {
 public:
  struct Options {
    std::string host;
    uint16_t port = 0;
    int listener = -1;   // a listening socket: this process serves on it. The store owns it from here on.
    std::string prefix;  // of every key
    std::chrono::milliseconds timeout{600'000};
  };
  explicit Store(const Options& options);
  ~Store();
  Store(const Store&) = delete;

  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key);  // waits for the key, up to the time-out
  int64_t add(const std::string& key, int64_t amount);
  bool check(const std::string& key);
  // Whether all keys came within `timeout`. All functions throw Error(kPeerLost) when rank 0 is gone.
  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  std::chrono::milliseconds timeout() const;
  // Called again and again while an operation waits; what it throws ends the wait, even for a server that has stopped.
  void set_guard(std::function<void()> guard);

  // The same store for a plugin; lives as long as this object.
  const gannet_store* table() const { return &table_; }

 private:
  template <class Body>
  auto perform(const std::string& doing, Body body);
  void check_guard();
  struct Client;
  // Shared with its thread, which outlives this object where an answer never comes.
  std::shared_ptr<Client> client_;
  // For guard_, which set_guard() may replace while another thread waits in an operation.
  std::mutex guard_mutex_;
  std::function<void()> guard_;
  gannet_store table_{};
};

}  // namespace gannet::control
