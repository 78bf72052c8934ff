// Version 3 of the Comm contract, on every plugin that connects several ranks: messages, batches, parts of different sizes,
// averages, sums in float, what is refused. completion_test.cpp has the rest.
#include <gannet/error.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <gannet/sdk_reduce.hpp>
#include <iostream>
#include <numeric>
#include <vector>

#include "comm/every_comm.h"
#include "comm/raw_group.h"
#include "control/world.h"

namespace {

using namespace gannet::test;
using gannet::Error;
using gannet::ErrorCode;
using gannet::Work;
using gannet::sdk::BFloat16;
using gannet::sdk::Float16;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;
namespace collective = gannet::collective;

INSTANTIATE_TEST_SUITE_P(Messages, EveryComm, kPlugins, plugin_name);

RANK_BODY(messages_in_order) {
  const auto world = join();
  RawGroup group{world->links().device()};
  // Rank 0 to rank 2 and back, of sizes around the transports' buffers, with a sum over all ranks among them.
  const std::vector<size_t> sizes = {1, 100'000, 3, 0, 300'001, 7};
  for (const uint32_t from : {0u, 2u}) {
    const uint32_t to = 2 - from;
    std::vector<std::vector<int32_t>> buffers;
    std::vector<Work> works;
    for (size_t m = 0; m < sizes.size(); ++m) {
      auto& buffer = buffers.emplace_back(sizes[m], -1);
      if (group.rank() == from) std::iota(buffer.begin(), buffer.end(), static_cast<int32_t>(m * 1000 + from));
      if (group.rank() == from) works.push_back(group.start(collective::send(buffer.data(), buffer.size(), GANNET_INT32, to)));
      if (group.rank() == to) works.push_back(group.start(collective::receive(buffer.data(), buffer.size(), GANNET_INT32, from)));
      if (m == 2) {
        double one = 1;
        group.all_reduce(&one, 1, GANNET_FLOAT64).wait();
        same(one, 3.0, "a sum among the messages");
      }
    }
    for (size_t w = works.size(); w-- > 0;) works[w].wait();  // in another order than they were sent
    if (group.rank() != to) continue;
    for (size_t m = 0; m < sizes.size(); ++m)
      for (size_t i = 0; i < sizes[m]; i += 997)
        same(buffers[m][i], static_cast<int32_t>(m * 1000 + from + i), "message " + std::to_string(m));
  }
  group.barrier();
}
TEST_P(EveryComm, MessagesOfTwoRanksArriveInTheOrderOfTheirSends) { run("messages_in_order", 3); }

RANK_BODY(exchanges) {
  const auto world = join();
  RawGroup group{world->links().device()};
  constexpr size_t kNumel = 1'000'003;  // more than any buffer between the ranks: two sends without receives would never end
  std::vector<std::vector<float>> out(group.size(), std::vector<float>(kNumel)), in = out;
  for (int round = 0; round < 3; ++round) {
    std::vector<gannet_collective_args> batch;
    for (uint32_t other = 0; other < group.size(); ++other) {
      if (other == group.rank()) continue;
      for (size_t i = 0; i < kNumel; ++i) out[other][i] = static_cast<float>(i % 1000 + group.rank() * 10 + other + round);
      batch.push_back(collective::send(out[other].data(), kNumel, GANNET_FLOAT32, other));
      batch.push_back(collective::receive(in[other].data(), kNumel, GANNET_FLOAT32, other));
    }
    group.group.start_many(batch, nullptr).wait();
    for (uint32_t other = 0; other < group.size(); ++other)
      for (size_t i = 0; other != group.rank() && i < kNumel; i += 101)
        same(in[other][i], static_cast<float>(i % 1000 + other * 10 + group.rank() + round), "what came");
  }
  // Many small gathers, and nothing at all.
  std::vector<std::vector<int64_t>> mine, all;
  std::vector<gannet_collective_args> batch;
  for (int64_t i = 0; i < 50; ++i) {
    mine.push_back({i, i + group.rank()});
    all.emplace_back(2 * group.size());
  }
  for (size_t i = 0; i < mine.size(); ++i)
    batch.push_back(collective::all_gather(mine[i].data(), all[i].data(), 2, GANNET_INT64));
  group.group.start_many(batch, nullptr).wait();
  for (size_t i = 0; i < mine.size(); ++i)
    for (uint32_t rank = 0; rank < group.size(); ++rank)
      same(all[i][2 * rank + 1], static_cast<int64_t>(i + rank), "a small gather");
  group.group.start_many({}, nullptr).wait();
}
TEST_P(EveryComm, RanksExchangeLargeMessagesInABatch) { run("exchanges", 3); }

template <class T>
void check_parts(RawGroup group, gannet_dtype dtype) {
  const uint32_t rank = group.rank(), size = group.size();
  // Rank r has r * 1001 elements: rank 0 has none.
  std::vector<uint64_t> counts;
  for (uint32_t r = 0; r < size; ++r) counts.push_back(uint64_t{r} * 1001);
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  const auto value = [](uint32_t of, uint64_t i) { return static_cast<T>(static_cast<float>((of * 7 + i) % 13)); };
  const auto number = [](T x) { return static_cast<double>(static_cast<float>(x)); };

  std::vector<T> mine(counts[rank]), all(total);
  for (uint64_t i = 0; i < mine.size(); ++i) mine[i] = value(rank, i);
  auto gather = collective::all_gather(mine.data(), all.data(), mine.size(), dtype);
  gather.recv_counts = counts.data();
  group.start(gather).wait();
  uint64_t at = 0;
  for (uint32_t r = 0; r < size; ++r)
    for (uint64_t i = 0; i < counts[r]; ++i) same(number(all[at++]), number(value(r, i)), "a part of a gather");

  std::vector<T> parts(total), sum(counts[rank]);
  for (uint64_t i = 0; i < total; ++i) parts[i] = value(rank, i);
  auto scatter = collective::reduce_scatter(parts.data(), sum.data(), sum.size(), dtype);
  scatter.send_counts = counts.data();
  group.start(scatter).wait();
  const uint64_t begin = std::accumulate(counts.begin(), counts.begin() + rank, uint64_t{0});
  for (uint64_t i = 0; i < sum.size(); ++i) {
    double expected = 0;
    for (uint32_t r = 0; r < size; ++r) expected += number(value(r, begin + i));
    same(number(sum[i]), expected, "a part of a sum");
  }

  // Rank r sends (r + other) * 3 elements to each other, and 2 to itself.
  std::vector<uint64_t> sent, received;
  for (uint32_t other = 0; other < size; ++other) {
    sent.push_back(other == rank ? 2 : (rank + other) * 3);
    received.push_back(sent.back());
  }
  std::vector<T> out(std::accumulate(sent.begin(), sent.end(), uint64_t{0})), in(out.size());
  for (uint64_t i = 0; i < out.size(); ++i) out[i] = value(rank, i);
  auto turn = collective::all_to_all(out.data(), in.data(), 0, dtype);
  turn.send_counts = sent.data();
  turn.recv_counts = received.data();
  group.start(turn).wait();
  at = 0;
  for (uint32_t other = 0; other < size; ++other) {
    uint64_t offset = 0;  // of what `other` sent here, in its own buffer
    for (uint32_t r = 0; r < rank; ++r) offset += r == other ? 2 : (r + other) * 3;
    for (uint64_t i = 0; i < received[other]; ++i)
      same(number(in[at++]), number(value(other, offset + i)), "a part of an exchange");
  }
}

RANK_BODY(parts) {
  const auto world = join();
  const RawGroup group{world->links().device()};
  check_parts<float>(group, GANNET_FLOAT32);
  check_parts<double>(group, GANNET_FLOAT64);
  check_parts<BFloat16>(group, GANNET_BFLOAT16);
  check_parts<int32_t>(group, GANNET_INT32);
}
TEST_P(EveryComm, PartsOfDifferentSizesComeToTheirPlaces) { run("parts", 4); }

RANK_BODY(sums) {
  const auto world = join();
  RawGroup group{world->links().device()};
  const auto rank = group.rank();
  std::vector<float> values = {1.f + rank, 3.f * rank};
  group.all_reduce(values.data(), 2, GANNET_FLOAT32, GANNET_AVERAGE).wait();
  same(values[0], 2.f, "an average over ranks 0 to 2");
  same(values[1], 3.f, "an average over ranks 0 to 2");

  auto weighted = collective::all_reduce(values.data(), 2, GANNET_FLOAT32, GANNET_PREMULTIPLIED_SUM);
  weighted.factor = 0.5 * (rank + 1);
  group.start(weighted).wait();
  same(values[0], 2.f * 3.f, "a sum of 0.5, 1 and 1.5 times the value");
  std::vector<double> scattered = {1, 2, 3}, own(1);
  auto part = collective::reduce_scatter(scattered.data(), own.data(), 1, GANNET_FLOAT64, GANNET_PREMULTIPLIED_SUM);
  part.factor = rank == 0 ? 10 : 1;
  group.start(part).wait();
  same(own[0], 12.0 * (rank + 1), "this rank's part of a weighted sum");
  same(scattered[0], 1.0, "what was sent stays as it was");
  group.start(collective::reduce_scatter(scattered.data(), own.data(), 1, GANNET_FLOAT64, GANNET_AVERAGE)).wait();
  same(own[0], static_cast<double>(rank + 1), "this rank's part of an average");

  same(group.group.comm().sum_dtype(GANNET_BFLOAT16), GANNET_BFLOAT16, "what the plugin says of partial sums");
  if (std::string(std::getenv("COMM")) == "nccl") {  // the library has no such sums
    std::vector<BFloat16> numbers(3, BFloat16(1.f));
    auto args = collective::all_reduce(numbers.data(), 3, GANNET_BFLOAT16);
    args.sum_dtype = GANNET_FLOAT32;
    try {
      group.start(args).wait();
    } catch (const Error& error) {
      expect(error.code() == ErrorCode::kUnsupported, "the code of the refusal");
      return group.barrier();  // the group is as before
    }
    throw std::runtime_error("a sum that is rounded once was not refused");
  }
  // 256 + 1 + 1: rounded after each sum it stays 256 in bfloat16, whose last bit weighs 2 there; rounded once it is 258.
  for (const bool scatters : {false, true}) {
    std::vector<BFloat16> wide(3, BFloat16(rank == 0 ? 256.f : 1.f)), sum(3);
    auto args = scatters ? collective::reduce_scatter(wide.data(), sum.data(), 1, GANNET_BFLOAT16)
                         : collective::all_reduce(wide.data(), 3, GANNET_BFLOAT16);
    args.sum_dtype = GANNET_FLOAT32;
    group.start(args).wait();
    same(static_cast<float>(scatters ? sum[0] : wide[2]), 258.f, "a sum that is rounded once");
  }
  std::vector<Float16> half(1, Float16(rank == 0 ? 2048.f : 1.f));
  auto args = collective::all_reduce(half.data(), 1, GANNET_FLOAT16);
  args.sum_dtype = GANNET_FLOAT32;
  group.start(args).wait();
  same(static_cast<float>(half[0]), 2050.f, "a sum of halves that is rounded once");
}
TEST_P(EveryComm, AveragesWeightsAndSumsInFloat) { run("sums", 3); }

RANK_BODY(refusals) {
  const auto world = join();
  RawGroup group{world->links().device()};
  std::vector<int32_t> numbers(4);
  const std::vector<uint64_t> counts = {1, 2};
  const auto refused = [&](gannet_collective_args args, const std::string& why) {
    try {
      group.start(args).wait();
    } catch (const Error& error) {
      expect(std::string(error.what()).find(why) != std::string::npos, "'" + why + "' in: " + error.what());
      return;
    }
    throw std::runtime_error("was not refused: " + why);
  };
  refused(collective::send(numbers.data(), 1, GANNET_INT32, group.rank()), "send: a rank exchanges no messages with itself");
  refused(collective::receive(numbers.data(), 1, GANNET_INT32, 2), "recv: rank 2 is not in a group of 2");
  refused(collective::broadcast(numbers.data(), 1, GANNET_INT32, 7), "broadcast: rank 7 is not in a group of 2");
  refused(collective::all_reduce(numbers.data(), 1, GANNET_INT32, GANNET_AVERAGE),
          "averages and factors need a floating-point type");
  refused(collective::all_reduce(numbers.data(), 1, static_cast<gannet_dtype>(99)), "dtype 99 is not one of gannet_dtype");
  refused(collective::all_reduce(numbers.data(), 1, GANNET_INT32, static_cast<gannet_reduce_op>(9)), "reduce operation 9");
  refused(collective::all_reduce(nullptr, 1, GANNET_INT32), "the buffer to send is null");
  auto gather = collective::all_gather(numbers.data(), numbers.data(), 4, GANNET_INT32);
  gather.recv_counts = counts.data();
  refused(gather, "elements for this rank, which sends 4");
  auto reduce = collective::all_reduce(numbers.data(), 1, GANNET_INT32);
  reduce.send_counts = counts.data();
  refused(reduce, "all_reduce: it takes no send_counts");
  auto turn = collective::all_to_all(numbers.data(), numbers.data(), 1, GANNET_INT32);
  turn.send_counts = counts.data();
  refused(turn, "send_counts and recv_counts go together");
  auto unknown = collective::barrier();
  unknown.op = 12;
  refused(unknown, "operation 12 is not one of gannet_collective");
  // A struct of an earlier plugin author, without the later fields: they are zero.
  float one = 1;
  auto shorter = collective::all_reduce(&one, 1, GANNET_FLOAT32);
  shorter.struct_size = offsetof(gannet_collective_args, factor);
  shorter.send_counts = counts.data();  // not read
  group.start(shorter).wait();
  same(one, 2.f, "a sum");
}
TEST_P(EveryComm, WrongArgumentsAreRefusedOnThisRankAlone) { run("refusals", 2); }

// The contract asks for counts that agree; a plugin that can tell says so instead of mixing messages up.
RANK_BODY(counts_that_differ) {
  const auto world = join();
  RawGroup group{world->links().device()};
  std::vector<float> values(100 + group.rank(), 1.f);
  try {
    group.all_reduce(values.data(), values.size(), GANNET_FLOAT32).wait();
  } catch (const Error& error) {
    const std::string found = error.what();
    // The other one may learn of it by this rank's end.
    expect(found.find("with different counts") != std::string::npos || error.code() == ErrorCode::kPeerLost, found);
    std::cout << "seen: " << found << std::endl;
    return;
  }
  throw std::runtime_error("a sum of different lengths completed");
}
TEST(FakeComm, RanksThatGiveDifferentCountsAreTold) {
  const auto outcomes = run_ranks("counts_that_differ", 2, {.environment = {{"COMM", "fake"}}});
  expect_all_succeed(outcomes);
  EXPECT_NE((outcomes[0].output + outcomes[1].output).find("with different counts"), std::string::npos);
}

RANK_BODY(memory) {
  const auto world = join();
  gannet::CommGroup& group = world->links().device();
  const bool offers = std::string(std::getenv("COMM")) == "fake";
  const auto memory = group.allocate(4096);
  same(memory != nullptr, offers, "memory of the plugin's");
  std::vector<float> own(100);
  auto registered = group.register_buffer(own.data(), 400);
  same(registered != nullptr, offers, "a registered buffer");
  if (!offers) return;
  try {
    group.register_buffer(own.data(), 400);
    throw std::runtime_error("a buffer was registered twice");
  } catch (const Error& error) {
    expect(std::string(error.what()).find("registered already") != std::string::npos, error.what());
  }
  registered.reset();
  registered = group.register_buffer(own.data(), 400);
}
TEST_P(EveryComm, MemoryOfThePluginIsOptional) { run("memory", 2); }

}  // namespace
