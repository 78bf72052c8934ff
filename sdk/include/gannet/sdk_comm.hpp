/// Builds a gannet_comm_api table from a C++ class, using gannet/sdk.hpp's exception wall.
///
///   struct Mail : gannet::sdk::CommBase {
///     struct Group { std::vector<uint32_t> ranks; ... };                any type
///     struct Work {                                                     the work of one collective, or of a batch
///       bool wait(uint64_t timeout_ms);                                 whether it is over; throws if it failed
///       bool is_over();                                                 whether wait would return at once
///     };
///     static constexpr std::array<gannet_param_spec, 0> kParams{};
///     Mail(const gannet_host&, const gannet::sdk::Params&, const gannet_rendezvous&);
///     std::unique_ptr<Group> make_group(const std::vector<uint32_t>& ranks, uint32_t rank, const std::string& name);
///     std::unique_ptr<Work> start(Group& group, const gannet::sdk::Collective& collective);
///     void abort();                                                     from any thread; all work in flight then ends with
///                                                                       an error
///   };
///   GANNET_PLUGINS("comm/mail@cpu", GANNET_TIER_STABLE,
///                  gannet::sdk::comm<Mail>("mail", "cpu", GANNET_TIER_STABLE, "", "1.0", "carrier pigeons"))
///
/// A derived class may also define
///   std::vector<std::unique_ptr<Work>> start_many(Group&, const std::vector<Collective>&);
///                                                                    default: starts each in turn, for plugins
///                                                                    whose start never blocks
///   void block(Work&, void* stream);                                 default: the host waits, as on a device without streams
///   uint32_t sum_dtype(uint32_t dtype) const;                        default: partial sums are rounded to `dtype`
///   static constexpr bool kTakesHandles = true; make_group(ranks, rank, name, void* external);    the vendor's communicator
///   void* allocate(Group&, uint64_t bytes); void deallocate(Group&, void*);
///   void register_buffer(Group&, void*, uint64_t bytes); void unregister_buffer(Group&, void*);   all four or none
///
/// The wall has already checked the arguments of start: the operation and the dtype are known, the
/// buffers are not null if there are elements, the ranks are in the group, and the counts are
/// consistent.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <gannet/sdk_reduce.hpp>
#include <memory>
#include <string>
#include <vector>

namespace gannet::sdk {

inline const char* name_of_collective(uint32_t op) {
  constexpr const char* kNames[] = {"",           "all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                    "all_to_all", "barrier",    "send",      "recv"};
  return op >= GANNET_ALL_REDUCE && op <= GANNET_RECV ? kNames[op] : "an unknown operation";
}

/// The checked arguments of one collective, and values derived from them.
struct Collective : gannet_collective_args {
  uint32_t rank = 0, size = 1;  // this rank's number in the group, and the group's size

  bool reduces() const { return op == GANNET_ALL_REDUCE || op == GANNET_REDUCE_SCATTER; }
  bool sums_in_float() const { return reduces() && sum_dtype == GANNET_FLOAT32 && is_16_bit_float(dtype); }
  uint64_t element_bytes() const { return op == GANNET_BARRIER ? 0 : bytes_of(dtype); }
  uint64_t bytes() const { return count * element_bytes(); }
  /// For operations with parts: the number of elements in rank i's part of the send or receive
  /// buffer, and the part's offset.
  uint64_t send_count(uint32_t i) const { return send_counts ? send_counts[i] : count; }
  uint64_t recv_count(uint32_t i) const { return recv_counts ? recv_counts[i] : count; }
  uint64_t send_offset(uint32_t i) const { return offset(send_counts, i); }
  uint64_t recv_offset(uint32_t i) const { return offset(recv_counts, i); }
  const char* send_part(uint32_t i) const { return static_cast<const char*>(send) + send_offset(i) * bytes_of(dtype); }
  char* recv_part(uint32_t i) const { return static_cast<char*>(recv) + recv_offset(i) * bytes_of(dtype); }
  /// The factor that multiplies the finished sum over the ranks.
  double final_factor() const { return reduces() && reduce_op == GANNET_AVERAGE ? 1.0 / size : 1.0; }
  /// The factor that multiplies every rank's elements before they are added.
  double first_factor() const { return reduces() && reduce_op == GANNET_PREMULTIPLIED_SUM ? factor : 1.0; }

 private:
  uint64_t offset(const uint64_t* counts, uint32_t i) const {
    if (!counts) return i * count;
    uint64_t sum = 0;
    for (uint32_t k = 0; k < i; ++k) sum += counts[k];
    return sum;
  }
};

/// Copies and checks the arguments. Fields that the caller's struct does not have are zero. Throws
/// Failure(GANNET_INVALID_ARGUMENT).
inline Collective checked(const gannet_collective_args& given, uint32_t rank, uint32_t size) {
  Collective c{};
  std::memcpy(static_cast<gannet_collective_args*>(&c), &given,
              std::min<size_t>(given.struct_size, sizeof(gannet_collective_args)));
  c.rank = rank;
  c.size = size;
  const auto refuse = [&](const std::string& why) {
    throw Failure(GANNET_INVALID_ARGUMENT, std::string(name_of_collective(c.op)) + ": " + why);
  };
  if (c.op < GANNET_ALL_REDUCE || c.op > GANNET_RECV)
    throw Failure(GANNET_INVALID_ARGUMENT, "operation " + std::to_string(c.op) + " is not one of gannet_collective");
  if (c.op == GANNET_BARRIER) return c;
  bytes_of(c.dtype);
  const bool sends = c.op != GANNET_BROADCAST && c.op != GANNET_RECV, receives = c.op != GANNET_SEND;
  const bool has_peer = c.op == GANNET_BROADCAST || c.op == GANNET_SEND || c.op == GANNET_RECV;
  if (has_peer && c.peer >= size) refuse("rank " + std::to_string(c.peer) + " is not in a group of " + std::to_string(size));
  if ((c.op == GANNET_SEND || c.op == GANNET_RECV) && c.peer == rank) refuse("a rank exchanges no messages with itself");
  if (c.send_counts && c.op != GANNET_REDUCE_SCATTER && c.op != GANNET_ALL_TO_ALL) refuse("it takes no send_counts");
  if (c.recv_counts && c.op != GANNET_ALL_GATHER && c.op != GANNET_ALL_TO_ALL) refuse("it takes no recv_counts");
  if (c.op == GANNET_ALL_TO_ALL && !c.send_counts != !c.recv_counts) refuse("send_counts and recv_counts go together");
  if (c.op == GANNET_ALL_GATHER && c.recv_counts && c.recv_counts[rank] != c.count)
    refuse("recv_counts has " + std::to_string(c.recv_counts[rank]) + " elements for this rank, which sends " +
           std::to_string(c.count));
  if (c.op == GANNET_REDUCE_SCATTER && c.send_counts && c.send_counts[rank] != c.count)
    refuse("send_counts has " + std::to_string(c.send_counts[rank]) + " elements for this rank, which takes " +
           std::to_string(c.count));
  if (c.op == GANNET_ALL_TO_ALL && c.send_counts && c.send_counts[rank] != c.recv_counts[rank])
    refuse("send_counts and recv_counts differ in this rank's own part");
  if (sends && !c.send && c.send_offset(c.op == GANNET_REDUCE_SCATTER || c.op == GANNET_ALL_TO_ALL ? size : 1) > 0)
    refuse("the buffer to send is null");
  if (receives && !c.recv && c.recv_offset(c.op == GANNET_ALL_GATHER || c.op == GANNET_ALL_TO_ALL ? size : 1) > 0)
    refuse("the buffer to receive into is null");
  if (c.reduces()) {
    if (c.reduce_op < GANNET_SUM || c.reduce_op > GANNET_PREMULTIPLIED_SUM)
      refuse("reduce operation " + std::to_string(c.reduce_op) + " is not one of gannet_reduce_op");
    if (c.reduce_op >= GANNET_AVERAGE && !is_float(c.dtype)) refuse("averages and factors need a floating-point type");
    if (c.sum_dtype != GANNET_DTYPE_NONE && c.sum_dtype != GANNET_FLOAT32 && c.sum_dtype != c.dtype)
      refuse("sum_dtype is " + std::to_string(c.sum_dtype) + ": only GANNET_FLOAT32 and the type itself are known");
  }
  return c;
}

/// Executes a collective in a group of one rank, synchronously, in host memory.
inline void do_alone(const Collective& c) {
  const bool copies = c.op != GANNET_BARRIER && c.op != GANNET_BROADCAST;
  const uint64_t count = c.send_count(0);
  if (!copies || count == 0) return;
  if (c.send != c.recv) std::memmove(c.recv, c.send, count * c.element_bytes());
  scale(c.recv, count, c.dtype, c.first_factor());
}

class CommBase : public HostServices {
 public:
  static constexpr bool kTakesHandles = false;
  CommBase(const gannet_host& host, const Params&, const gannet_rendezvous& rendezvous)
      : HostServices(host), rank_(rendezvous.rank), world_size_(rendezvous.world_size), timeout_ms_(rendezvous.timeout_ms) {}
  uint32_t rank() const { return rank_; }
  uint32_t world_size() const { return world_size_; }
  uint64_t timeout_ms() const { return timeout_ms_; }
  uint32_t sum_dtype(uint32_t dtype) const { return dtype; }

  /// Counts the bytes that were sent and received; the wall counts the calls.
  void count_traffic(uint64_t sent, uint64_t received) {
    bytes_sent_.fetch_add(sent, std::memory_order_relaxed);
    bytes_received_.fetch_add(received, std::memory_order_relaxed);
  }
  /// Counts the bytes that a rank of this collective sends and receives at least, for a library that
  /// does not tell what it sent.
  void count_least_traffic(const Collective& c) {
    const uint64_t element = c.element_bytes(), others = c.size - 1;
    uint64_t sent = 0, received = 0;
    switch (c.op) {
      case GANNET_ALL_REDUCE:  // a reduce-scatter and a gather
        sent = received = 2 * c.bytes() * others / c.size;
        break;
      case GANNET_BROADCAST:
        (c.rank == c.peer ? sent : received) = c.rank == c.peer ? c.bytes() * others : c.bytes();
        break;
      case GANNET_ALL_GATHER:
        sent = c.bytes() * others;
        received = c.recv_offset(c.size) * element - c.bytes();
        break;
      case GANNET_REDUCE_SCATTER:
        sent = c.send_offset(c.size) * element - c.bytes();
        received = c.bytes() * others;
        break;
      case GANNET_ALL_TO_ALL:
        sent = (c.send_offset(c.size) - c.send_count(c.rank)) * element;
        received = (c.recv_offset(c.size) - c.recv_count(c.rank)) * element;
        break;
      case GANNET_SEND:
        sent = c.bytes();
        break;
      case GANNET_RECV:
        received = c.bytes();
    }
    count_traffic(sent, received);
  }
  void count_calls(uint64_t calls) { calls_.fetch_add(calls, std::memory_order_relaxed); }
  void counters(gannet_comm_counters& out) const {
    out.calls = calls_.load(std::memory_order_relaxed);
    out.bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
    out.bytes_received = bytes_received_.load(std::memory_order_relaxed);
  }

 private:
  uint32_t rank_, world_size_;
  uint64_t timeout_ms_;
  std::atomic<uint64_t> calls_{0}, bytes_sent_{0}, bytes_received_{0};
};

namespace detail {

template <class Derived, class = void>
inline constexpr bool kStartsMany = false;
template <class Derived>
inline constexpr bool kStartsMany<Derived, std::void_t<decltype(&Derived::start_many)>> = true;
template <class Derived, class = void>
inline constexpr bool kBlocks = false;
template <class Derived>
inline constexpr bool kBlocks<Derived, std::void_t<decltype(&Derived::block)>> = true;
template <class Derived, class = void>
inline constexpr bool kAllocates = false;
template <class Derived>
inline constexpr bool kAllocates<Derived, std::void_t<decltype(&Derived::allocate)>> = true;

template <class Derived>
struct CommGroupHolder {
  std::unique_ptr<typename Derived::Group> group;
  uint32_t rank, size;
};

/// The works of one call: a single work, or one per collective of a batch that was started one by
/// one.
template <class Derived>
struct CommWorkHolder {
  std::vector<std::unique_ptr<typename Derived::Work>> works;
};

template <class Derived>
inline constexpr gannet_comm_api kCommApi = [] {
  using Group = CommGroupHolder<Derived>;
  using Work = CommWorkHolder<Derived>;
  gannet_comm_api api{};
  api.struct_size = sizeof(api);
  api.version = GANNET_COMM_VERSION;
  api.create = [](const gannet_host* host, const gannet_params* params, const gannet_rendezvous* rendezvous, void** self,
                  gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Derived(*host, Params(*params), *rendezvous); });
  };
  api.destroy = [](void* self) { delete static_cast<Derived*>(self); };
  api.group_create = [](void* self, const uint32_t* ranks, uint32_t count, const char* name, void* external, void** group,
                        gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& comm = *static_cast<Derived*>(self);
      const std::string text = name ? name : "";
      const uint32_t* mine = std::find(ranks, ranks + count, comm.rank());
      if (mine == ranks + count)
        throw Failure(GANNET_INVALID_ARGUMENT,
                      "rank " + std::to_string(comm.rank()) + " is not a member of group '" + text + "'");
      for (uint32_t i = 0; i < count; ++i)
        if (ranks[i] >= comm.world_size() || std::find(ranks, ranks + i, ranks[i]) != ranks + i)
          throw Failure(GANNET_INVALID_ARGUMENT,
                        "group '" + text + "' names rank " + std::to_string(ranks[i]) +
                            (ranks[i] >= comm.world_size() ? ", which the world does not have" : " twice"));
      const auto rank = static_cast<uint32_t>(mine - ranks);
      const std::vector<uint32_t> members(ranks, ranks + count);
      auto made = std::make_unique<Group>(Group{nullptr, rank, count});
      if constexpr (Derived::kTakesHandles) {
        made->group = comm.make_group(members, rank, text, external);
      } else {
        if (external) throw Failure(GANNET_UNSUPPORTED, "this comm plugin takes no communicator from outside");
        made->group = comm.make_group(members, rank, text);
      }
      *group = made.release();
    });
  };
  api.group_destroy = [](void*, void* group) { delete static_cast<Group*>(group); };
  api.collective = [](void* self, void* group, const gannet_collective_args* args, void** work, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& comm = *static_cast<Derived*>(self);
      auto& members = *static_cast<Group*>(group);
      auto started = std::make_unique<Work>();
      started->works.push_back(comm.start(*members.group, checked(*args, members.rank, members.size)));
      comm.count_calls(1);
      *work = started.release();
    });
  };
  api.collective_many = [](void* self, void* group, const gannet_collective_args* args, uint64_t count, uint64_t stride,
                           void** work, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& comm = *static_cast<Derived*>(self);
      auto& members = *static_cast<Group*>(group);
      std::vector<Collective> batch;  // all are checked before the first is started
      for (uint64_t i = 0; i < count; ++i)
        batch.push_back(
            checked(*reinterpret_cast<const gannet_collective_args*>(reinterpret_cast<const char*>(args) + i * stride),
                    members.rank, members.size));
      auto started = std::make_unique<Work>();
      if constexpr (kStartsMany<Derived>)
        started->works = comm.start_many(*members.group, batch);
      else
        for (const Collective& one : batch) started->works.push_back(comm.start(*members.group, one));
      comm.count_calls(count);
      *work = started.release();
    });
  };
  api.work_wait = [](void*, void* work, uint64_t timeout_ms, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
      for (auto& one : static_cast<Work*>(work)->works) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        if (!one->wait(static_cast<uint64_t>(std::max<int64_t>(left.count(), 0))))
          throw Failure(GANNET_TIMEOUT, "a collective did not complete in " + std::to_string(timeout_ms) +
                                            " ms: a rank is late, or the ranks call different collectives");
      }
    });
  };
  api.work_query = [](void*, void* work, int32_t* is_over, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& works = static_cast<Work*>(work)->works;
      *is_over = std::all_of(works.begin(), works.end(), [](auto& one) { return one->is_over(); });
    });
  };
  api.work_block = [](void* self, void* work, void* stream, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& comm = *static_cast<Derived*>(self);
      for (auto& one : static_cast<Work*>(work)->works) {
        if constexpr (kBlocks<Derived>)
          if (stream) {
            comm.block(*one, stream);
            continue;
          }
        if (!one->wait(comm.timeout_ms()))
          throw Failure(GANNET_TIMEOUT, "a collective did not complete in " + std::to_string(comm.timeout_ms()) + " ms");
      }
    });
  };
  api.work_free = [](void*, void* work) { delete static_cast<Work*>(work); };
  api.abort = [](void* self) { static_cast<Derived*>(self)->abort(); };
  api.counters = [](void* self, gannet_comm_counters* out) { static_cast<Derived*>(self)->counters(*out); };
  api.sum_dtype = [](void* self, uint32_t dtype) -> uint32_t { return static_cast<Derived*>(self)->sum_dtype(dtype); };
  if constexpr (kAllocates<Derived>) {
    api.allocate = [](void* self, void* group, uint64_t bytes, void** memory, gannet_error* error) -> int32_t {
      return guarded(error, [&] { *memory = static_cast<Derived*>(self)->allocate(*static_cast<Group*>(group)->group, bytes); });
    };
    api.deallocate = [](void* self, void* group, void* memory) {
      guarded(nullptr, [&] { static_cast<Derived*>(self)->deallocate(*static_cast<Group*>(group)->group, memory); });
    };
    api.register_buffer = [](void* self, void* group, void* buffer, uint64_t bytes, gannet_error* error) -> int32_t {
      return guarded(error,
                     [&] { static_cast<Derived*>(self)->register_buffer(*static_cast<Group*>(group)->group, buffer, bytes); });
    };
    api.unregister_buffer = [](void* self, void* group, void* buffer, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Derived*>(self)->unregister_buffer(*static_cast<Group*>(group)->group, buffer); });
    };
  }
  return api;
}();

}  // namespace detail

/// `device`: the device whose memory the plugin moves. `fingerprint`: GANNET_FINGERPRINT for the
/// pinned tier, "" for the stable one.
template <class Derived>
constexpr gannet_descriptor comm(const char* name, const char* device, gannet_tier tier, const char* fingerprint,
                                 const char* version, const char* doc) {
  return describe(GANNET_KIND_COMM, tier, name, device, version, fingerprint, doc, std::data(Derived::kParams),
                  std::size(Derived::kParams), &detail::kCommApi<Derived>);
}

}  // namespace gannet::sdk
