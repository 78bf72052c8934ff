// The memory of a rank against a plain count of it, and the choice of the smallest change.
#include <gannet/estimate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "estimate/fit.h"
#include "params/layout.h"
#include "plugin/support.h"

namespace gannet::zero {
namespace {

using test::error_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// ---- Activations

TEST(Estimate, ActivationsAreCountedAndTheCheapestRungOfTheirLadderIsProposedFirst) {
  Plan plan{.model = {.parameters = 1'000'000, .largest = 1000}, .ranks = 1, .ranks_per_host = 1};
  const uint64_t without = estimate(plan).device;
  plan.activations = {.bytes = 10 * kGiB};
  plan.activation_changes = {{"a to 1", {.bytes = 6 * kGiB}},
                             {"b to 1", {.bytes = 2 * kGiB, .tier_bytes = kGiB, .tier = Tier::kCpu}},
                             {"c to 1", {.bytes = kGiB}}};
  EXPECT_EQ(estimate(plan).device, without + 10 * kGiB);
  FreeSpace room{.device = 3 * kGiB, .host = 64 * kGiB};
  const Error error = error_of([&] { fit(plan, room); });
  EXPECT_THAT(error.message(), Not(HasSubstr("not counted")));
  EXPECT_THAT(error.next_step(), AllOf(HasSubstr("with fewer activations kept it fits"), HasSubstr("set b to 1")));
  room.host = kGiB / 2;  // the tier of b does not fit
  EXPECT_THAT(error_of([&] { fit(plan, room); }).next_step(), HasSubstr("set c to 1"));
  room.device = 11 * kGiB;
  EXPECT_NO_THROW(fit(plan, room));
}

TEST(Estimate, GradientsThatBackwardMakesAsItDropsActivationsAreNotAddedToAllOfThem) {
  Plan plan{.model = {.parameters = 1000, .largest = 10}, .device_is_host = true};
  const uint64_t rest = 1000 * (2 + 4 + 8), gradients = 2 * 1000;
  const auto with = [&](uint64_t kept) {
    plan.activations = {.bytes = kept, .gradient_bytes = 20, .last_bytes = kept / 10};
    return estimate(plan).host;
  };
  EXPECT_EQ(with(500), rest + gradients + 500 + 20);
  plan.gradients_stay = false;
  EXPECT_EQ(with(500), rest + gradients + 50) << "the end of backward";
  EXPECT_EQ(with(5000), rest + 5000 + 20) << "its beginning";
  plan.placement = {.stage = 2, .offload_optimizer = Tier::kCpu};
  plan.device_is_host = false;
  EXPECT_EQ(estimate(plan).host, 1000 * (4 + 8) + gradients) << "gradients leave the device";
}

// ---- Bytes

// Every kind of bytes separately: how many elements a rank has of it, and in which memory they are.
RankBytes counted(const Plan& plan) {
  const auto& m = plan.model;
  const auto& at = plan.placement;
  std::map<std::string, uint64_t> in;  // "device" | "pinned" | "nvme"
  const std::map<Tier, std::string> memory = {{Tier::kNone, "device"}, {Tier::kCpu, "pinned"}, {Tier::kNvme, "nvme"}};
  const auto mine = [&](int stage_that_shards) {
    uint64_t numel = 0;  // rank 0 has every ranks-th element
    for (uint64_t i = 0; i < m.parameters; ++i) numel += at.stage < stage_that_shards || i % plan.ranks == 0;
    return numel;
  };
  const bool apart = at.offload_optimizer != Tier::kNone && !plan.device_is_host;
  const uint64_t master = apart && m.master_bytes == 0 ? m.param_bytes : m.master_bytes;
  const bool may_stay = at.offload_param == Tier::kNvme;
  const uint64_t params = mine(3);
  for (uint64_t i = 0; i < params; ++i)
    in[may_stay && i < plan.buffers.max_in_cpu ? "pinned" : memory.at(at.offload_param)] += m.param_bytes;
  const bool all_stay = may_stay && plan.device_is_host && params <= plan.buffers.max_in_cpu;
  const uint64_t master_type = m.param_bytes == 2 ? 4 : m.param_bytes, second = m.has_second_gradient ? master_type : 0;
  in[memory.at(at.offload_optimizer)] += mine(1) * master + mine(1) * m.state_bytes + mine(1) * m.average_bytes;
  in[memory.at(at.offload_optimizer)] += mine(1) * second + mine(1) * (m.keeps_masters ? master_type : 0);
  in[at.stage >= 2 && apart ? "pinned" : "device"] += mine(2) * m.grad_bytes;
  if (at.stage >= 2 && (plan.ranks > 1 || apart))
    for (int bucket = 0; bucket < 2; ++bucket)
      in["device"] += std::max<uint64_t>(plan.buffers.reduce_bucket_size, m.largest) * m.grad_bytes;
  if (at.stage == 3 && (plan.ranks > 1 || (at.offload_param != Tier::kNone && !all_stay)))
    in["device"] += std::min<uint64_t>(m.largest + m.largest + plan.buffers.prefetch_bucket_size,
                                       std::max<uint64_t>(m.largest, plan.buffers.max_live_parameters)) *
                    m.param_bytes;
  if (at.offload_optimizer == Tier::kNvme)
    for (uint64_t page = 0; page < plan.buffers.buffer_count; ++page)
      in["pinned"] += plan.buffers.sub_group_size * (master + m.state_bytes + m.average_bytes + second);

  RankBytes bytes{.device = in["device"], .host = in["pinned"], .pinned = in["pinned"], .nvme = in["nvme"]};
  if (plan.device_is_host) bytes = {.device = 0, .host = in["device"] + in["pinned"], .pinned = 0, .nvme = in["nvme"]};
  bytes.checkpoint = m.parameters * ((m.param_bytes == 2 ? 4 : m.param_bytes) + m.state_bytes + m.average_bytes) / plan.ranks;
  return bytes;
}

TEST(Estimate, CountsEveryElementOfEveryStageTierDtypeAndNumberOfRanks) {
  for (const Placement& placement : legal_placements())
    for (const uint32_t ranks : {1u, 2u, 4u, 8u})
      for (const uint32_t param_bytes : {2u, 4u, 8u})
        for (const auto& [device_is_host, max_in_cpu] :
             {std::pair(false, 0u), std::pair(true, 0u), std::pair(false, 9'000u), std::pair(true, 90'000u)}) {
          Plan plan{.model = {.parameters = 80'000,
                              .largest = 3'000,
                              .param_bytes = param_bytes,
                              .grad_bytes = param_bytes == 2 ? 4 : param_bytes,
                              .master_bytes = param_bytes == 2 ? 4u : 0u,
                              .state_bytes = 2 * std::max(4u, param_bytes)},
                    .ranks = ranks,
                    .ranks_per_host = 2,
                    .device_is_host = device_is_host,
                    .placement = placement,
                    .buffers = {.reduce_bucket_size = 5'000,
                                .prefetch_bucket_size = 1'000,
                                .max_live_parameters = 5'000,
                                .sub_group_size = 700,
                                .buffer_count = 3,
                                .max_in_cpu = max_in_cpu}};
          plan.model.keeps_masters = ranks % 2 == 0;  // of ranks and tiers each with and without
          plan.model.has_second_gradient = ranks == 1 || ranks == 4;
          plan.model.average_bytes = ranks <= 2 ? std::max(4u, param_bytes) : 0;
          const RankBytes found = estimate(plan), expected = counted(plan);
          const std::string where = to_string(placement) + " on " + std::to_string(ranks) + " ranks, " +
                                    std::to_string(param_bytes) + " bytes, device_is_host " + std::to_string(device_is_host);
          EXPECT_EQ(found.device, expected.device) << where;
          EXPECT_EQ(found.host, expected.host) << where;
          EXPECT_EQ(found.pinned, expected.pinned) << where;
          EXPECT_EQ(found.nvme, expected.nvme) << where;
          EXPECT_EQ(found.checkpoint, expected.checkpoint) << where;
        }
}

Plan billion(uint32_t ranks, Placement placement) {
  return {.model = {.parameters = 1'000'000'000, .largest = 1'000'000},
          .ranks = ranks,
          .ranks_per_host = ranks,
          .placement = placement};
}

TEST(Estimate, IsTheZeroPapersTable) {
  const uint64_t p = 1'000'000'000, bucket = 8 << 20;
  EXPECT_EQ(estimate(billion(64, {.stage = 0})).device, 16 * p);
  EXPECT_EQ(estimate(billion(64, {.stage = 1})).device, 4 * p + 12 * p / 64);
  EXPECT_EQ(estimate(billion(64, {.stage = 2})).device, 2 * p + 14 * p / 64 + 2 * 2 * bucket);
  EXPECT_EQ(estimate(billion(64, {.stage = 3})).device, 16 * p / 64 + 2 * 2 * bucket + 2 * (2 * 1'000'000 + 50'000'000));
  EXPECT_EQ(checkpoint_bytes(billion(1, {}).model), 12 * p);
  for (int stage = 0; stage <= 3; ++stage)  // one rank has nothing to share
    EXPECT_EQ(estimate(billion(1, {.stage = stage})).device, 16 * p) << stage;
}

TEST(Estimate, ATensorThatIsLargerThanABucketIsOneOfItsOwnAndNoBufferIsLargerThanTheModel) {
  Plan plan = billion(2, {.stage = 2});
  plan.model.largest = 50'000'000;
  EXPECT_EQ(estimate(plan).device, 2'000'000'000 + 7'000'000'000 + 2 * 2 * 50'000'000ull);
  plan.model.parameters = plan.model.largest = 1000;
  EXPECT_EQ(estimate(plan).device, 2 * 1000 + 14 * 500 + 2 * 2 * 1000u);
  plan.placement = {.stage = 3, .offload_optimizer = Tier::kNvme};
  EXPECT_EQ(estimate(plan).device, 2 * 500 + 2 * 2 * 1000 + 2 * 1000u);
  EXPECT_EQ(estimate(plan).host, 2 * 500 + 12 * 500u);  // gradients, and one page
}

TEST(Estimate, IsWhatTheLayoutOfTheFlatBuffersComesTo) {
  std::vector<int64_t> numels;
  uint64_t parameters = 0;
  for (int64_t i = 0; i < 200; ++i) parameters += static_cast<uint64_t>(numels.emplace_back(1 + i * i * 37 % 9000));
  for (const uint32_t ranks : {2u, 4u, 8u}) {
    Plan plan{
        .model = {.parameters = parameters, .largest = static_cast<uint64_t>(*std::max_element(numels.begin(), numels.end()))},
        .ranks = ranks,
        .placement = {.stage = 2},
        .buffers = {.reduce_bucket_size = 20'000}};
    const Layout layout = lay_out(numels, 20'000, ranks);
    int64_t own = 0, largest = 0;
    for (const Shard& shard : shards_of(layout, 0, ranks)) own += shard.numel;
    for (const Bucket& bucket : layout.buckets) largest = std::max(largest, bucket.numel);
    const int64_t kept = 2 * layout.numel + 14 * own + 2 * 2 * largest, estimated = static_cast<int64_t>(estimate(plan).device);
    const int64_t padding = (2 * layout.numel + 14 * own) - static_cast<int64_t>(2 * parameters + 14 * parameters / ranks);
    EXPECT_LE(kept, estimated + padding + 2 * 2 * kAlignment * ranks) << ranks;
    EXPECT_GT(kept, estimated - 2 * 2 * 9000) << ranks;  // a bucket may lack up to a tensor
    EXPECT_LT(padding, estimated / 50) << ranks;
  }
}

TEST(Estimate, OneMoreParameterTakesWhatZeroAndOffloadLeaveInTheMemoryThatTrains) {
  Plan plan{.model = {.parameters = 10, .largest = 10}, .ranks = 4, .ranks_per_host = 4};
  const auto bytes = [&](const Placement& placement) {
    plan.placement = placement;
    return bytes_per_parameter(plan);
  };
  EXPECT_DOUBLE_EQ(bytes({}), 16);
  EXPECT_DOUBLE_EQ(bytes({.stage = 1}), 4 + 12. / 4);
  EXPECT_DOUBLE_EQ(bytes({.stage = 2}), 2 + 14. / 4);
  EXPECT_DOUBLE_EQ(bytes({.stage = 3}), 16. / 4);
  EXPECT_DOUBLE_EQ(bytes({.stage = 2, .offload_optimizer = Tier::kCpu}), 2);
  EXPECT_DOUBLE_EQ(bytes({.stage = 3, .offload_optimizer = Tier::kNvme, .offload_param = Tier::kCpu}), 0);
  plan.device_is_host = true;
  EXPECT_DOUBLE_EQ(bytes({.stage = 2, .offload_optimizer = Tier::kCpu}), 2 + 14. / 4);
  EXPECT_DOUBLE_EQ(bytes({.stage = 2, .offload_optimizer = Tier::kNvme}), 2 + 2. / 4);
}

TEST(Estimate, WithoutPinMemoryNothingIsPinned) {
  Plan plan = billion(2, {.stage = 3, .offload_optimizer = Tier::kNvme, .offload_param = Tier::kCpu});
  const uint64_t host = estimate(plan).host;
  EXPECT_EQ(estimate(plan).pinned, host);
  plan.buffers.pin_memory = false;
  EXPECT_EQ(estimate(plan).pinned, 0u);
  EXPECT_EQ(estimate(plan).host, host);
}

TEST(Estimate, KnowsSixteenLegalPlacements) {
  EXPECT_EQ(legal_placements().size(), 1u + 3 + 3 + 9);
  EXPECT_FALSE((Placement{.stage = 0, .offload_optimizer = Tier::kCpu}.is_legal()));
  EXPECT_FALSE((Placement{.stage = 2, .offload_param = Tier::kCpu}.is_legal()));
  EXPECT_FALSE((Placement{.stage = 4}.is_legal()));
}

TEST(Estimate, BuildingTheModelTakesItWholeOnEachRankOrItsShard) {
  ModelSize model{.parameters = 1000, .largest = 100};
  EXPECT_EQ(built_whole_bytes(model), 4000u);  // in fp32, though it trains in 16 bits
  EXPECT_EQ(built_sharded_bytes(model, 4), 4u * (250 + 100));
  EXPECT_EQ(built_sharded_bytes(model, 1), 4000u);
  model.largest = 1000;
  EXPECT_EQ(built_sharded_bytes(model, 4), 4000u);
  model.param_bytes = 8;
  EXPECT_EQ(built_whole_bytes(model), 8000u);
}

// ---- Fit

FreeSpace room(uint64_t device_gib, uint64_t host_gib, std::optional<uint64_t> nvme_gib = {}) {
  FreeSpace room{.device = device_gib * kGiB, .host = host_gib * kGiB};
  if (nvme_gib) room.nvme = *nvme_gib * kGiB;
  return room;
}

Placement chosen(const Plan& plan, const FreeSpace& room) {
  const auto change = smallest_change(plan, room);
  if (!change || change->ranks != plan.ranks) ADD_FAILURE() << "no placement on " << plan.ranks << " ranks";
  return change ? change->placement : Placement{};
}

TEST(Fit, KnowsWhichPlacementsAreFast) {
  const auto all = fastest_first();
  ASSERT_EQ(all.size(), legal_placements().size());
  const std::vector<Placement> first = {
      {.stage = 0},
      {.stage = 1},
      {.stage = 2},
      {.stage = 1, .offload_optimizer = Tier::kCpu},
      {.stage = 2, .offload_optimizer = Tier::kCpu},
      {.stage = 3},
      {.stage = 3, .offload_optimizer = Tier::kCpu},
      {.stage = 3, .offload_param = Tier::kCpu},
      {.stage = 3, .offload_optimizer = Tier::kCpu, .offload_param = Tier::kCpu},
      {.stage = 1, .offload_optimizer = Tier::kNvme},
  };
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(all[i], first[i]) << i << ": " << to_string(all[i]);
  EXPECT_EQ(all.back(), (Placement{3, Tier::kNvme, Tier::kNvme}));
}

TEST(Fit, WhatFitsIsNoError) { EXPECT_NO_THROW(fit(billion(8, {.stage = 2}), room(4, 0))); }

TEST(Fit, ChoosesTheLowestStageFirst) {  // on 8 ranks: 14.9, 5.1, 3.6, 2.0 GiB
  EXPECT_EQ(chosen(billion(8, {}), room(6, 100, 100)), (Placement{.stage = 1}));
  EXPECT_EQ(chosen(billion(8, {}), room(4, 100, 100)), (Placement{.stage = 2}));
  EXPECT_EQ(chosen(billion(8, {}), room(3, 100, 100)), (Placement{.stage = 3}));
}

TEST(Fit, ThenOffloadToHostMemoryThenToNvme) {
  EXPECT_EQ(chosen(billion(2, {.stage = 2}), room(3, 100, 100)), (Placement{.stage = 2, .offload_optimizer = Tier::kCpu}));
  EXPECT_EQ(chosen(billion(4, {.stage = 2}), room(1, 100, 100)), (Placement{.stage = 3, .offload_optimizer = Tier::kCpu}));
  // Masters, states and gradients of both ranks are 13.0 GiB of host memory.
  EXPECT_EQ(chosen(billion(2, {.stage = 2}), room(3, 12, 100)), (Placement{.stage = 2, .offload_optimizer = Tier::kNvme}));
  EXPECT_EQ(chosen(billion(2, {.stage = 2, .offload_optimizer = Tier::kCpu}), room(3, 12, 100)),
            (Placement{.stage = 2, .offload_optimizer = Tier::kNvme}));
}

TEST(Fit, NvmeIsProposedWhereAFolderIsKnownOrNamedAlready) {
  EXPECT_GT(smallest_change(billion(2, {.stage = 2}), room(3, 12))->ranks, 2u);
  EXPECT_EQ(chosen(billion(2, {.stage = 1, .offload_optimizer = Tier::kNvme}), room(3, 12)),
            (Placement{.stage = 2, .offload_optimizer = Tier::kNvme}));
}

TEST(Fit, OneGraphicsCardTakesTheModelByOffload) {
  EXPECT_EQ(chosen(billion(1, {}), room(6, 100)), (Placement{.stage = 1, .offload_optimizer = Tier::kCpu}));
  EXPECT_EQ(chosen(billion(1, {}), room(1, 100)),
            (Placement{.stage = 3, .offload_optimizer = Tier::kCpu, .offload_param = Tier::kCpu}));
}

TEST(Fit, ThenTheSmallestNumberOfRanksOnWholeHosts) {
  const Plan plan = billion(2, {});
  const FreeSpace small = room(2, 1);
  const auto change = smallest_change(plan, small);
  ASSERT_TRUE(change);
  EXPECT_GT(change->ranks, 2u);
  EXPECT_EQ(change->ranks % 2, 0u);
  EXPECT_TRUE(lacks(*change, small).empty());
  for (uint32_t ranks = 4; ranks < change->ranks; ranks += 2)  // on fewer no placement fits that needs no NVMe
    for (Placement placement : legal_placements()) {
      if (placement.offload_optimizer == Tier::kNvme || placement.offload_param == Tier::kNvme) continue;
      Plan fewer = plan;
      fewer.ranks = ranks;
      fewer.placement = placement;
      EXPECT_FALSE(lacks(fewer, small).empty()) << to_string(placement) << " on " << ranks;
    }
  const Error error = error_of([&] { fit(plan, small); });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("nothing fits on 2 ranks; " + to_string(change->placement) + " fits on " +
                                            std::to_string(change->ranks) + " ranks (" + std::to_string(change->ranks / 2) +
                                            " hosts like this one)"),
                                  HasSubstr("set zero_optimization.stage to 3")));
}

TEST(Fit, SaysWhatLacksOfEachMemoryAndWhatToSet) {
  FreeSpace small = room(8, 1);
  small.checkpoint = kGiB;
  const Error error = error_of([&] { fit(billion(2, {.stage = 1, .offload_optimizer = Tier::kCpu}), small); });
  EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("at stage 1 with offload_optimizer to cpu on 2 ranks"), Not(HasSubstr("device memory")),
                    HasSubstr("11.2 GiB of host memory by the 2 ranks of a host are needed, 1.0 GiB are free: 10.2 GiB lack"),
                    HasSubstr("11.2 GiB of disk space for a checkpoint are needed"), HasSubstr("activations are not counted")));
  EXPECT_THAT(error.next_step(), HasSubstr("free disk space"));

  const Error stage = error_of([&] { fit(billion(8, {}), room(4, 1)); });
  EXPECT_THAT(stage.message(), HasSubstr("14.9 GiB of device memory are needed, 4.0 GiB are free: 10.9 GiB lack"));
  EXPECT_EQ(stage.next_step(), "stage 2 fits: 3.5 GiB of 4.0 GiB of device memory; set zero_optimization.stage to 2");
  const Error nvme = error_of([&] { fit(billion(2, {.stage = 2}), room(3, 12, 100)); });
  EXPECT_THAT(nvme.next_step(), HasSubstr("set zero_optimization.offload_optimizer.device to \"nvme\" and its nvme_path"));
}

// Parameters that stay in memory next to NVMe can go there as well: no other placement is needed
// for that.
TEST(Fit, ParametersThatStayInMemoryBesideNvmeGoThereFirst) {
  Plan plan = billion(1, {.stage = 3, .offload_optimizer = Tier::kNvme, .offload_param = Tier::kNvme});
  plan.device_is_host = true;
  const uint64_t bare = estimate(plan).host;
  plan.buffers.max_in_cpu = 1'000'000'000;
  const Error error = error_of([&] { fit(plan, {.host = bare + kGiB, .nvme = 100 * kGiB}); });
  EXPECT_THAT(error.next_step(), HasSubstr("set zero_optimization.offload_param.max_in_cpu to 0"));
  EXPECT_THAT(error.next_step(), Not(HasSubstr("device to")));
}

TEST(Fit, SaysWhereNoNumberOfRanksWouldDo) {  // the largest parameter is larger than the device by itself
  Plan plan = billion(2, {});
  plan.model.largest = plan.model.parameters;
  EXPECT_FALSE(smallest_change(plan, room(1, 100, 100)));
  EXPECT_THAT(error_of([&] { fit(plan, room(1, 100)); }).next_step(), HasSubstr("on any number of ranks"));
}

TEST(Fit, WhereTheDeviceIsTheHostOffloadToHostMemoryIsNoWayOut) {
  Plan plan = billion(2, {});
  plan.device_is_host = true;
  EXPECT_EQ(chosen(plan, {.host = 19 * kGiB}), (Placement{.stage = 1}));  // both ranks: 29.8, 18.6, 16.8, 15.3 GiB
  EXPECT_EQ(chosen(plan, {.host = 10 * kGiB, .nvme = 100 * kGiB}), (Placement{.stage = 1, .offload_optimizer = Tier::kNvme}));
  EXPECT_EQ(chosen(plan, {.host = 100 * kGiB, .process = 9 * kGiB}), (Placement{.stage = 2}));
}

}  // namespace
}  // namespace gannet::zero
