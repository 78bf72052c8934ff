// Checks of queues and events. Copies are within host memory, which every device's queues must
// support.
#include <algorithm>
#include <cstring>
#include <thread>

#include "base/format.h"
#include "kit/accelerator/checks.h"
#include "kit/growth.h"
#include "kit/memory.h"
#include "kit/numbers.h"

namespace gannet::kit {
namespace {

class Event {
 public:
  Event(const Device& device, void* handle) : device_(&device), handle_(handle) {}
  Event(Event&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  ~Event() {
    if (handle_) device_->api().event_destroy(device_->self(), handle_);
  }
  void* handle() const { return handle_; }
  bool is_over() const {
    int32_t is_over = 0;
    require_ok("event_query",
               call("event_query", device_->plugin(), device_->api().event_query, device_->self(), handle_, &is_over));
    return is_over != 0;
  }
  void wait() const {
    require_ok("event_wait", call("event_wait", device_->plugin(), device_->api().event_wait, device_->self(), handle_));
  }

 private:
  const Device* device_;
  void* handle_;
};

class Queue {
 public:
  Queue(const Device& device, const char* name) : device_(device) {
    const CallOutcome outcome =
        call("queue_create", device.plugin(), device.api().queue_create, device.self(), uint32_t{0}, name, &handle_);
    require_explained("queue_create", outcome);
    require_ok("queue_create", outcome);
  }
  Queue(const Queue&) = delete;
  ~Queue() { end(); }
  void end() {
    if (!handle_) return;
    const CallScope calling("queue_destroy", 0);
    device_.api().queue_destroy(device_.self(), std::exchange(handle_, nullptr));
  }
  void copy(void* to, const void* from, uint64_t bytes) {
    require_ok("queue_copy",
               call("queue_copy", device_.plugin(), device_.api().queue_copy, device_.self(), handle_, to, from, bytes));
  }
  Event record() {
    void* event = nullptr;
    require_ok("event_record",
               call("event_record", device_.plugin(), device_.api().event_record, device_.self(), handle_, &event));
    if (!event) throw CheckFailure("event_record returned GANNET_OK and no event", text_of(place()));
    return {device_, event};
  }
  void wait(const Event& event) {
    require_ok("queue_wait_event", call("queue_wait_event", device_.plugin(), device_.api().queue_wait_event, device_.self(),
                                        handle_, event.handle()));
  }
  void* handle() const { return handle_; }

 private:
  const Device& device_;
  void* handle_ = nullptr;
};

Buffer filled(uint64_t bytes, uint64_t seed) {
  Buffer buffer(bytes, "a buffer of a copy");
  for (uint64_t i = 0; i < bytes; ++i)
    buffer.as<unsigned char>()[i] = static_cast<unsigned char>(mixed(seed, i / 8) >> i % 8 * 8);
  return buffer;
}

void require_same(const Buffer& found, const Buffer& expected, const std::string& what) {
  const auto* bytes = found.as<const unsigned char>();
  const auto [a, b] = std::mismatch(bytes, bytes + found.bytes(), expected.as<const unsigned char>());
  if (a != bytes + found.bytes())
    throw CheckFailure(
        formatted("{}: byte {} of {} is {:#x}, not {:#x}", what, a - bytes, found.bytes(), unsigned{*a}, unsigned{*b}),
        text_of(place()));
  if (std::string where; !found.is_intact(&where))
    throw CheckFailure(formatted("a copy wrote {} of its target", where), text_of(place()), "no access outside of a buffer");
}

void require_queues(const Device& device) {
  if (!device.has_queues()) throw SkippedCheck("it has no queues");
}

constexpr uint64_t kLarge = (8 << 20) + 5;

}  // namespace

void copy_in_order(Subject& subject) {
  const Device device(subject);
  require_queues(device);
  Queue queue(device, "copies");
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{7}, uint64_t{64}, uint64_t{4097}, uint64_t{300'001}, kLarge}) {
    set_config(formatted("copies of {} bytes", bytes));
    const Buffer one = filled(bytes, 1), two = filled(bytes, 2);
    Buffer first(bytes, "the first target"), second(bytes, "the second"), back_one(bytes, "the third"),
        back_two(bytes, "the fourth");
    for (int round = 0; round < 3; ++round) {
      queue.copy(first.data(), one.data(), bytes);
      queue.copy(second.data(), first.data(), bytes);
      queue.copy(first.data(), two.data(), bytes);
      queue.copy(back_one.data(), second.data(), bytes);
      queue.copy(back_two.data(), first.data(), bytes);
    }
    queue.record().wait();
    require_same(back_one, one, "a copy of a copy");
    require_same(back_two, two, "a copy after it");
  }
  set_config("odd offsets, in parts");
  const Buffer from = filled(100'003, 3);
  Buffer to(from.bytes(), "the target");
  uint64_t at = 0;
  for (uint64_t i = 0; at < from.bytes(); ++i) {
    const uint64_t part = std::min(from.bytes() - at, mixed(5, i) % 3001);
    queue.copy(to.as<char>() + at, from.as<char>() + at, part);  // some of them have 0 bytes
    at += part;
  }
  queue.record().wait();
  require_same(to, from, "parts at odd offsets");
}

void order_by_events(Subject& subject) {
  const Device device(subject);
  require_queues(device);
  Queue in(device, "in"), out(device, "out");
  {  // a queue without any work
    const Event idle = in.record();
    idle.wait();
    if (!idle.is_over()) throw CheckFailure("event_query says that an event is not over after event_wait", text_of(place()));
    idle.wait();
  }
  set_config("event_query alone");
  for (uint64_t round = 0; round < 10; ++round) {
    const Buffer from = filled(kLarge, round);
    Buffer to(kLarge, "the target");
    std::memset(to.data(), 0xee, to.bytes());
    in.copy(to.data(), from.data(), kLarge);
    const Event done = in.record();
    while (!done.is_over()) std::this_thread::yield();
    require_same(to, from, "after an event that event_query says is over");
  }
  set_config("one queue waits for another, by events");
  std::vector<Buffer> sources, targets;
  for (uint64_t round = 0; round < 10; ++round) {
    sources.push_back(filled(100'001, 100 + round));
    targets.emplace_back(100'001, "the target");
  }
  Buffer there(100'001, "a buffer that both queues use");
  for (int round = 0; round < 10; ++round) {
    in.copy(there.data(), sources[round].data(), there.bytes());
    out.wait(in.record());
    out.copy(targets[round].data(), there.data(), there.bytes());
    in.wait(out.record());
  }
  out.record().wait();
  for (int round = 0; round < 10; ++round) require_same(targets[round], sources[round], formatted("round {}", round));
  set_config("the default stream");
  void* stream = device.api().native_stream(device.self(), 0, 0);
  require_ok("queue_wait_stream",
             call("queue_wait_stream", device.plugin(), device.api().queue_wait_stream, device.self(), in.handle(), stream));
  in.copy(there.data(), sources[3].data(), there.bytes());
  const Event copied = in.record();
  require_ok("stream_wait_event",
             call("stream_wait_event", device.plugin(), device.api().stream_wait_event, device.self(), stream, copied.handle()));
  copied.wait();
  require_same(there, sources[3], "a copy between a stream's work");
}

void synchronize_all(Subject& subject) {
  const Device device(subject);
  require_queues(device);
  set_config("two queues, a copy of 8 MiB on each");
  for (uint64_t round = 0; round < 5; ++round) {
    Queue one(device, "one"), two(device, "two");
    const Buffer from = filled(kLarge, round);
    Buffer first(kLarge, "the first target"), second(kLarge, "the second");
    one.copy(first.data(), from.data(), kLarge);
    two.copy(second.data(), from.data(), kLarge);
    require_ok("synchronize", call("synchronize", device.plugin(), device.api().synchronize, device.self(), uint32_t{0}));
    require_same(first, from, "after synchronize");
    require_same(second, from, "after synchronize");
  }
}

void outlive_queues(Subject& subject) {
  const Device device(subject);
  require_queues(device);
  set_config("a queue is destroyed after a copy of 8 MiB");
  for (uint64_t round = 0; round < 5; ++round) {
    const Buffer from = filled(kLarge, round);
    Buffer to(kLarge, "the target");
    Queue queue(device, "short");
    queue.copy(to.data(), from.data(), kLarge);
    const Event last = queue.record();
    queue.end();
    require_same(to, from, "after queue_destroy");
    if (!last.is_over()) throw CheckFailure("the event of a destroyed queue is not over", text_of(place()));
    last.wait();
    // Another queue that waits for this event proceeds.
    Queue other(device, "other");
    other.wait(last);
    other.record().wait();
  }
}

void use_queues_in_threads(Subject& subject) {
  const Device device(subject);
  require_queues(device);
  constexpr size_t kThreads = 3;
  std::vector<std::string> wrong(kThreads);
  std::vector<std::thread> threads;
  const Buffer from = filled(300'001, 1);
  Queue shared(device, "shared");
  Buffer common(from.bytes(), "the target of all");
  shared.copy(common.data(), from.data(), from.bytes());
  const Event event = shared.record();
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      use_place(t + 1);
      set_config(formatted("thread {} of {}", t, kThreads));
      try {
        Queue queue(device, "of a thread");
        for (uint64_t round = 0; round < 20; ++round) {
          const Buffer own = filled(20'001, 100 * t + round);
          Buffer to(own.bytes(), "the target of a thread");
          queue.wait(event);
          queue.copy(to.data(), own.data(), own.bytes());
          const Event done = queue.record();
          event.wait();
          done.wait();
          require_same(to, own, "a copy of this thread's queue");
          require_same(common, from, "a copy that another thread's queue made");
        }
      } catch (const CheckFailure& failure) {
        wrong[t] = failure.found;
      } catch (const std::exception& error) {
        wrong[t] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  for (size_t t = 0; t < kThreads; ++t)
    if (!wrong[t].empty()) throw CheckFailure(wrong[t], formatted("thread {} of {}", t, kThreads));
}

void pin_memory(Subject& subject) {
  const Device device(subject);
  require_queues(device);
  set_config("1 MiB, pinned three times");
  const auto& api = device.api();
  Queue queue(device, "pinned");
  Buffer memory = filled(1 << 20, 1);
  const Buffer from = filled(memory.bytes(), 2);
  Buffer back(memory.bytes(), "the target");
  for (int round = 0; round < 3; ++round) {
    require_ok("pin", call("pin", device.plugin(), api.pin, device.self(), memory.data(), uint64_t{memory.bytes()}));
    queue.copy(memory.data(), from.data(), from.bytes());
    queue.copy(back.data(), memory.data(), memory.bytes());
    queue.record().wait();
    require_ok("unpin", call("unpin", device.plugin(), api.unpin, device.self(), memory.data()));
    require_same(back, from, "a copy by pinned memory");
    require_same(memory, from, "memory that was pinned");
  }
}

void leave_nothing_of_queues(Subject& subject) {
  const Device device(subject);
  require_queues(device);
  const Buffer from = filled(5000, 1);
  Buffer to(from.bytes(), "the target");
  require_no_growth(
      [&] {
        Queue queue(device, "queue");
        require_ok("pin", call("pin", device.plugin(), device.api().pin, device.self(), to.data(), uint64_t{to.bytes()}));
        for (int i = 0; i < 5; ++i) {
          queue.copy(to.data(), from.data(), from.bytes());
          queue.record().wait();
        }
        require_ok("unpin", call("unpin", device.plugin(), device.api().unpin, device.self(), to.data()));
      },
      100, "100 queues with 5 events each");
}

}  // namespace gannet::kit
