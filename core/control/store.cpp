#include "control/store.h"

#include <c10/util/Exception.h>
#include <c10/util/Flags.h>
#include <gannet/error.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <future>
#include <gannet/sdk.hpp>
#include <gannet/sdk_threads.hpp>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/format.h"
#include "control/network.h"

C10_DECLARE_int(caffe2_log_level);

namespace gannet::control {
namespace {

std::vector<uint8_t> to_bytes(const std::string& text) { return std::vector<uint8_t>(text.begin(), text.end()); }

// Runs a c10d operation and translates its exceptions to Error, without their backtraces.
template <class Body>
auto translated(const std::string& doing, Body&& body) {
  try {
    return body();
  } catch (const c10::DistStoreError& error) {
    throw Error(ErrorCode::kTimeout, formatted("{} of the ranks' store timed out: {}", doing, error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kPeerLost, formatted("{} of the ranks' store failed: {}", doing, error.what_without_backtrace()),
                "the store lives in rank 0 (or in the agent that started the ranks): see how that process ended");
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kPeerLost, formatted("{} of the ranks' store failed: {}", doing, error.what()));
  }
}

// While a store exists, c10d logs only errors: its warnings (no reverse DNS; a closed connection, with a
// backtrace) repeat the ranks' own errors or report no fault. TORCH_CPP_LOG_LEVEL overrides this.
class QuietC10d {
 public:
  QuietC10d() {
    const std::lock_guard lock(mutex);
    if (count++ == 0 && !std::getenv("TORCH_CPP_LOG_LEVEL"))
      former = std::exchange(FLAGS_caffe2_log_level, std::max(FLAGS_caffe2_log_level, kErrors));
  }
  ~QuietC10d() {
    const std::lock_guard lock(mutex);
    if (--count == 0 && former) FLAGS_caffe2_log_level = *std::exchange(former, std::nullopt);
  }
  QuietC10d(const QuietC10d&) = delete;

 private:
  static constexpr int kErrors = 2;  // c10/util/Logging.h, whose macros collide with other libraries'
  static inline std::mutex mutex;
  static inline int count = 0;
  static inline std::optional<int> former;
};

int32_t status_of(const Error& error) {
  return error.code() == ErrorCode::kTimeout    ? GANNET_TIMEOUT
         : error.code() == ErrorCode::kPeerLost ? GANNET_PEER_LOST
                                                : GANNET_INTERNAL;
}

template <class Body>
int32_t walled(gannet_error* error, Body&& body) noexcept {
  try {
    body();
    return GANNET_OK;
  } catch (const Error& failure) {
    return sdk::report(error, status_of(failure), failure.what());
  } catch (const std::exception& failure) {
    return sdk::report(error, GANNET_INTERNAL, failure.what());
  }
}

}  // namespace

// The c10d client and the thread that uses it. If the server's process is stopped and never
// answers, only this thread hangs. It shares ownership of the client, so both can be abandoned
// safely.
struct Store::Client {
  QuietC10d quiet;
  c10::intrusive_ptr<c10d::TCPStore> tcp;
  std::string prefix;
  std::chrono::milliseconds timeout;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;  // guarded by mutex
  bool busy = false, ends = false;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ends || !jobs.empty(); });
      if (ends) return;
      auto job = std::move(jobs.front());
      jobs.pop_front();
      busy = true;
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
      busy = false;
    }
  }
};

// Runs `body` on the client's thread. `body` must capture by value, since it may outlive its
// caller.
template <class Body>
auto Store::perform(const std::string& doing, Body body) {
  using Result = decltype(body(*client_));
  check_guard();
  auto task =
      std::make_shared<std::packaged_task<Result()>>([client = client_.get(), body = std::move(body)] { return body(*client); });
  auto answer = task->get_future();
  {
    std::lock_guard lock(client_->mutex);
    client_->jobs.emplace_back([task] { (*task)(); });
  }
  client_->changed.notify_one();
  // The wait is divided into short ones, so that the guard can end it if the server is stopped.
  const auto end = std::chrono::steady_clock::now() + timeout();
  while (answer.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    check_guard();
    if (std::chrono::steady_clock::now() > end)
      throw Error(
          ErrorCode::kTimeout,
          formatted("{} of the ranks' store timed out: rank 0, or the agent that serves the store, does not answer", doing));
  }
  return translated(doing, [&] { return answer.get(); });
}

void Store::check_guard() {
  std::lock_guard lock(guard_mutex_);
  if (guard_) guard_();
}

void Store::set_guard(std::function<void()> guard) {
  std::lock_guard lock(guard_mutex_);
  guard_ = std::move(guard);
}

Store::Store(const Options& options) : client_(std::make_shared<Client>()) {
  client_->prefix = options.prefix;
  client_->timeout = options.timeout;
  translated(formatted("connecting to {}:{}", options.host, options.port), [&] {
    c10d::TCPStoreOptions tcp;
    tcp.port = options.port;
    tcp.isServer = options.listener >= 0;
    if (tcp.isServer) tcp.masterListenFd = static_cast<size_t>(options.listener);
    tcp.waitWorkers = false;
    tcp.timeout = options.timeout;
    sdk::without_signals([&] {
      client_->tcp = c10::make_intrusive<c10d::TCPStore>(options.host, tcp);
      client_->thread = std::thread([client = client_] { client->run(); });
    });
  });

  table_.struct_size = sizeof(table_);
  table_.context = this;
  table_.set = [](void* self, const char* key, const void* bytes, uint64_t count, gannet_error* error) -> int32_t {
    return walled(error, [&] { static_cast<Store*>(self)->set(key, std::string(static_cast<const char*>(bytes), count)); });
  };
  table_.get = [](void* self, const char* key, const void** bytes, uint64_t* count, gannet_error* error) -> int32_t {
    return walled(error, [&] {
      // The bytes live until the next call on this thread (gannet_store::get).
      thread_local std::string value;
      value = static_cast<Store*>(self)->get(key);
      *bytes = value.data();
      *count = value.size();
    });
  };
  table_.add = [](void* self, const char* key, int64_t amount, int64_t* result, gannet_error* error) -> int32_t {
    return walled(error, [&] { *result = static_cast<Store*>(self)->add(key, amount); });
  };
  table_.wait = [](void* self, const char* key, uint64_t timeout_ms, gannet_error* error) -> int32_t {
    return walled(error, [&] {
      if (!static_cast<Store*>(self)->wait({key}, std::chrono::milliseconds(timeout_ms)))
        throw Error(ErrorCode::kTimeout, formatted("no rank has set the key '{}' in {} ms", key, timeout_ms));
    });
  };
  table_.check = [](void* self, const char* key, int32_t* exists, gannet_error* error) -> int32_t {
    return walled(error, [&] { *exists = static_cast<Store*>(self)->check(key) ? 1 : 0; });
  };
}

Store::~Store() {
  bool stuck;
  {
    std::lock_guard lock(client_->mutex);
    client_->ends = true;
    stuck = client_->busy;
  }
  client_->changed.notify_one();
  if (stuck)
    client_->thread.detach();
  else
    client_->thread.join();
}

void Store::set(const std::string& key, const std::string& value) {
  perform(formatted("writing '{}'", key),
          [key, value](Client& client) { client.tcp->set(client.prefix + key, to_bytes(value)); });
}

std::string Store::get(const std::string& key) {
  if (!wait({key}, timeout()))
    throw Error(ErrorCode::kTimeout, formatted("no rank has set '{}' in the ranks' store in time", key));
  return perform(formatted("reading '{}'", key), [key](Client& client) {
    const auto bytes = client.tcp->get(client.prefix + key);
    return std::string(bytes.begin(), bytes.end());
  });
}

int64_t Store::add(const std::string& key, int64_t amount) {
  return perform(formatted("adding to '{}'", key),
                 [key, amount](Client& client) { return client.tcp->add(client.prefix + key, amount); });
}

bool Store::check(const std::string& key) {
  return perform(formatted("looking for '{}'", key), [key](Client& client) { return client.tcp->check({client.prefix + key}); });
}

// Polls, because a c10d wait occupies the connection and logs warnings of its own when it times
// out.
bool Store::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + timeout;
  auto pause = 1ms;
  for (const auto& key : keys) {
    while (!check(key)) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      std::this_thread::sleep_for(std::min(left, pause));
      pause = std::min(pause * 2, 50ms);
    }
  }
  return true;
}

std::chrono::milliseconds Store::timeout() const { return client_->timeout; }

}  // namespace gannet::control
