// Every collective of every Comm plugin against an obvious reference, on the types of the contract and on odd sizes.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gannet/distributed.h>
#include <gannet/error.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "comm/ranks.h"
#include "comm/raw_group.h"
#include "control/world.h"

namespace {

using gannet::test::RawGroup;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;

template <class T>
constexpr gannet_dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) return GANNET_FLOAT32;
  if constexpr (std::is_same_v<T, double>) return GANNET_FLOAT64;
  if constexpr (std::is_same_v<T, c10::Half>) return GANNET_FLOAT16;
  if constexpr (std::is_same_v<T, c10::BFloat16>) return GANNET_BFLOAT16;
  if constexpr (std::is_same_v<T, int8_t>) return GANNET_INT8;
  if constexpr (std::is_same_v<T, uint8_t>) return GANNET_UINT8;
  if constexpr (std::is_same_v<T, int16_t>) return GANNET_INT16;
  if constexpr (std::is_same_v<T, int32_t>) return GANNET_INT32;
  if constexpr (std::is_same_v<T, int64_t>) return GANNET_INT64;
  return GANNET_BOOL;
}

// Small whole numbers: every sum below is exact in every type.
template <class T>
T value(uint32_t rank, size_t i) {
  return static_cast<T>(static_cast<int>((i * 3 + rank * 5) % 11));
}

template <class T>
std::string shown(const T& x) {
  return std::to_string(static_cast<double>(x));
}

// Elements beyond the buffer must stay as they are.
template <class T>
struct Guarded {
  static constexpr size_t kGuard = 7;
  explicit Guarded(size_t count) : numel(count), data(count + kGuard, static_cast<T>(3)) {}
  T* get() { return data.data(); }
  void check(const std::string& what) const {
    for (size_t i = 0; i < kGuard; ++i) same(shown(data[numel + i]), shown(static_cast<T>(3)), what + " wrote past the end");
  }
  size_t numel;
  std::vector<T> data;
};

template <class T, class Expected>
void compare(const Guarded<T>& found, Expected&& expected, const std::string& what) {
  for (size_t i = 0; i < found.numel; ++i) same(shown(found.data[i]), shown(expected(i)), what + " at " + std::to_string(i));
  found.check(what);
}

template <class T>
void check_moves(RawGroup group, size_t count) {
  const uint32_t rank = group.rank(), size = group.size();
  const std::string what = " dtype " + std::to_string(dtype_of<T>()) + " count " + std::to_string(count);
  Guarded<T> own(count);
  for (size_t i = 0; i < count; ++i) own.get()[i] = value<T>(rank, i);

  for (uint32_t root = 0; root < size; ++root) {
    Guarded<T> buffer = own;
    group.broadcast(buffer.get(), count, dtype_of<T>(), root).wait();
    compare(buffer, [&](size_t i) { return value<T>(root, i); }, "broadcast" + what);
  }
  Guarded<T> gathered(count * size);
  group.all_gather(own.get(), gathered.get(), count, dtype_of<T>()).wait();
  compare(gathered, [&](size_t i) { return value<T>(static_cast<uint32_t>(i / count), i % count); }, "all_gather" + what);

  Guarded<T> parts(count * size), received(count * size);
  for (size_t i = 0; i < count * size; ++i) parts.get()[i] = value<T>(rank, i);
  group.all_to_all(parts.get(), received.get(), count, dtype_of<T>()).wait();
  compare(
      received, [&](size_t i) { return value<T>(static_cast<uint32_t>(i / count), rank * count + i % count); },
      "all_to_all" + what);
}

template <class T>
void check_reductions(RawGroup group, size_t count) {
  const uint32_t rank = group.rank(), size = group.size();
  const std::string what = " dtype " + std::to_string(dtype_of<T>()) + " count " + std::to_string(count);
  const auto reference = [&](gannet_reduce_op op, size_t i) {
    double total = static_cast<double>(value<T>(0, i));
    for (uint32_t r = 1; r < size; ++r) {
      const double next = static_cast<double>(value<T>(r, i));
      total = op == GANNET_SUM ? total + next : op == GANNET_MAX ? std::max(total, next) : std::min(total, next);
    }
    return static_cast<T>(total);
  };
  for (const auto op : {GANNET_SUM, GANNET_MAX, GANNET_MIN}) {
    Guarded<T> buffer(count);
    for (size_t i = 0; i < count; ++i) buffer.get()[i] = value<T>(rank, i);
    group.all_reduce(buffer.get(), count, dtype_of<T>(), op).wait();
    compare(buffer, [&](size_t i) { return reference(op, i); }, "all_reduce " + std::to_string(op) + what);
  }
  Guarded<T> all(count * size), part(count);
  for (size_t i = 0; i < count * size; ++i) all.get()[i] = value<T>(rank, i);
  const auto before = all.data;
  group.reduce_scatter(all.get(), part.get(), count, dtype_of<T>()).wait();
  compare(part, [&](size_t i) { return reference(GANNET_SUM, rank * count + i); }, "reduce_scatter" + what);
  ranks::expect(std::memcmp(before.data(), all.data.data(), before.size() * sizeof(T)) == 0,
                "reduce_scatter leaves its input alone" + what);
  T* own = all.get() + rank * count;
  group.reduce_scatter(all.get(), own, count, dtype_of<T>()).wait();
  std::copy_n(own, count, part.get());
  compare(part, [&](size_t i) { return reference(GANNET_SUM, rank * count + i); }, "reduce_scatter in place" + what);
  group.all_gather(own, all.get(), count, dtype_of<T>()).wait();
  compare(all, [&](size_t i) { return reference(GANNET_SUM, i); }, "all_gather in place" + what);
}

void check_all(RawGroup group) {
  for (const size_t count : {0, 1, 3, 17, 1000, 4099, 300'001}) {
    check_moves<float>(group, count);
    check_reductions<float>(group, count);
  }
  const size_t count = 129;
  check_moves<double>(group, count);
  check_moves<c10::Half>(group, count);
  check_moves<c10::BFloat16>(group, count);
  check_moves<int8_t>(group, count);
  check_moves<uint8_t>(group, count);
  check_moves<int16_t>(group, count);
  check_moves<int32_t>(group, count);
  check_moves<int64_t>(group, count);
  check_reductions<double>(group, count);
  check_reductions<c10::Half>(group, count);
  check_reductions<c10::BFloat16>(group, count);
  check_reductions<int8_t>(group, count);
  check_reductions<uint8_t>(group, count);
  check_reductions<int32_t>(group, count);
  check_reductions<int64_t>(group, count);
  group.barrier();
}

RANK_BODY(every_collective) {
  auto group = gannet::init_distributed();
  check_all({group->links().device()});
  gannet::destroy_distributed();
}

TEST(Local, EveryCollectiveOfOneProcessIsTheCopyItShouldBe) {
  const auto outcome = ranks::run_one("every_collective", {{"RANK", ""}, {"WORLD_SIZE", ""}});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}
TEST(Gloo, EveryCollectiveAgreesWithTheReferenceOnTwoRanks) { expect_all_succeed(run_ranks("every_collective", 2)); }
TEST(Gloo, EveryCollectiveAgreesWithTheReferenceOnThreeRanks) { expect_all_succeed(run_ranks("every_collective", 3)); }
TEST(Gloo, EveryCollectiveAgreesWithTheReferenceOnFourRanks) { expect_all_succeed(run_ranks("every_collective", 4)); }
TEST(Gloo, ServesAWorldOfOneWhenItIsNamed) {
  const auto outcome = ranks::run_one("every_collective_of_gloo", {{"RANK", ""}, {"WORLD_SIZE", ""}});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}
RANK_BODY(every_collective_of_gloo) {
  gannet::DistributedOptions options;
  options.comm = "gloo";
  auto group = gannet::init_distributed(options);
  same(group->world()->comm().plugin().name(), "gloo", "the plugin");
  check_all({group->links().device()});
}

RANK_BODY(bools_and_int16) {
  auto joined = gannet::init_distributed();
  RawGroup group{joined->links().device()};
  uint8_t flags[3] = {group.rank() == 1, 0, 1};
  group.all_reduce(flags, 3, GANNET_BOOL, GANNET_SUM).wait();
  same(int(flags[0]) * 100 + flags[1] * 10 + flags[2], 101, "a sum of booleans is 'or'");
  int16_t numbers[2] = {1, 2};
  try {
    group.all_reduce(numbers, 2, GANNET_INT16).wait();
    throw std::runtime_error("int16 was reduced");
  } catch (const gannet::Error& error) {
    ranks::expect(error.code() == gannet::ErrorCode::kUnsupported, "the code is unsupported");
    ranks::expect(std::string(error.what()).find("int16") != std::string::npos,
                  std::string("the type is named in: ") + error.what());
  }
  group.barrier();
}
TEST(Gloo, BooleansReduceByOrAndInt16IsRefusedWithASentence) { expect_all_succeed(run_ranks("bools_and_int16", 2)); }

RANK_BODY(many_in_flight) {
  auto joined = gannet::init_distributed();
  RawGroup group{joined->links().device()};
  constexpr size_t kBuckets = 20, kNumel = 10'001;
  std::vector<std::vector<float>> buckets(kBuckets, std::vector<float>(kNumel));
  std::vector<gannet::Work> works;
  for (size_t b = 0; b < kBuckets; ++b) {
    for (size_t i = 0; i < kNumel; ++i) buckets[b][i] = static_cast<float>(b + i % 5 + group.rank());
    works.push_back(group.all_reduce(buckets[b].data(), kNumel, GANNET_FLOAT32));
  }
  for (size_t b = kBuckets; b-- > 0;) {  // waited for in another order than started
    works[b].wait();
    for (size_t i = 0; i < kNumel; ++i)
      same(buckets[b][i], static_cast<float>(3 * (b + i % 5) + 3), "a bucket in flight with others");
  }
}
TEST(Gloo, ManyCollectivesInFlightKeepTheirBuffersApart) { expect_all_succeed(run_ranks("many_in_flight", 3)); }

RANK_BODY(subsets) {
  auto world = gannet::init_distributed();
  auto evens = world->subset({2, 0});
  auto odds = world->subset({1, 3});
  auto three = world->subset({3, 1, 0});
  same(evens != nullptr, world->rank() % 2 == 0, "membership of {2, 0}");
  same(odds != nullptr, world->rank() % 2 == 1, "membership of {1, 3}");
  same(three != nullptr, world->rank() != 2, "membership of {3, 1, 0}");
  if (evens) same(evens->rank(), world->rank() == 2 ? 0u : 1u, "ranks follow the order given");
  RawGroup mine{(evens ? evens : odds)->links().device()};
  check_all(mine);
  if (three) {
    check_all({three->links().device()});
    // A subset of a subset: its ranks are those of the group it is taken from. {1, 2} of {3, 1, 0} are the world's 1 and 0.
    auto pair = three->subset({1, 2});
    same(pair != nullptr, world->rank() < 2, "membership of {1, 2} of {3, 1, 0}");
    if (pair) {
      int64_t sum = world->rank() + 10;
      RawGroup{pair->links().device()}.all_reduce(&sum, 1, GANNET_INT64).wait();
      same(sum, 21, "sum over the world's ranks 0 and 1");
    }
  }
  auto alone = world->subset({3});
  if (alone) check_all({alone->links().device()});
  world->barrier();
  for (const auto& wrong : {std::vector<uint32_t>{}, {4}, {1, 1}}) {
    try {
      world->subset(wrong);
      throw std::runtime_error("a wrong subset was made");
    } catch (const gannet::Error& error) {
      ranks::expect(error.code() == gannet::ErrorCode::kArgument, error.what());
    }
  }
}
TEST(Gloo, SubsetsInAnyOrderHaveTheirOwnCollectives) { expect_all_succeed(run_ranks("subsets", 4)); }

RANK_BODY(counters) {
  auto group = gannet::init_distributed();
  auto& comm = group->world()->comm();
  const auto before = comm.counters();
  std::vector<float> buffer(1200), all(1200 * 4);
  RawGroup world{group->links().device()};
  world.all_reduce(buffer.data(), 1200, GANNET_FLOAT32).wait();
  auto now = comm.counters();
  same(now.bytes_sent - before.bytes_sent, 2u * 4800 * 3 / 4, "bytes of an all_reduce");
  same(now.calls - before.calls, 1u, "calls");
  world.all_gather(buffer.data(), all.data(), 1200, GANNET_FLOAT32).wait();
  same(comm.counters().bytes_sent - now.bytes_sent, 4800u * 3, "bytes of an all_gather");
  world.barrier();
}
TEST(Gloo, CountersFollowTheFormulas) { expect_all_succeed(run_ranks("counters", 4)); }

RANK_BODY(local_counters) {
  auto group = gannet::init_distributed();
  float one = 1;
  RawGroup{group->links().device()}.all_reduce(&one, 1, GANNET_FLOAT32).wait();
  same(group->world()->comm().plugin().name(), "local", "the plugin for one process");
  same(group->world()->comm().counters().bytes_sent, 0u, "bytes on the wire");
  ranks::expect(group->world()->comm().counters().calls >= 1, "calls are counted");
}
TEST(Local, SendsNothingOverAnyWire) {
  const auto outcome = ranks::run_one("local_counters", {{"RANK", ""}, {"WORLD_SIZE", ""}});
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

}  // namespace
