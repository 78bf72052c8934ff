// The ranks' key-value store: a c10d TCPStore served by rank 0 or torchrun's agent, with a prefix on every key.
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
    int listener = -1;   // a listening socket to serve on; the store takes ownership
    std::string prefix;  // put in front of every key
    std::chrono::milliseconds timeout{600'000};
  };
  explicit Store(const Options& options);
  ~Store();
  Store(const Store&) = delete;

  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key);  // waits for the key, up to the timeout
  int64_t add(const std::string& key, int64_t amount);
  bool check(const std::string& key);
  // Returns whether all keys arrived within `timeout`. All functions throw Error(kPeerLost) if the
  // server is gone, and Error(kTimeout) if it does not answer.
  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  std::chrono::milliseconds timeout() const;
  // `guard` is called repeatedly while an operation waits. An exception from it ends the wait, even
  // if the server hangs.
  void set_guard(std::function<void()> guard);

  // The function table through which a plugin uses this store; valid while this object lives.
  const gannet_store* table() const { return &table_; }

 private:
  template <class Body>
  auto perform(const std::string& doing, Body body);
  void check_guard();
  struct Client;
  // Shared with the client's thread, which outlives this object if an answer never arrives.
  std::shared_ptr<Client> client_;
  // Protects guard_, which set_guard() may replace while another thread waits in an operation.
  std::mutex guard_mutex_;
  std::function<void()> guard_;
  gannet_store table_{};
};

}  // namespace gannet::control
