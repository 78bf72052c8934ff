// Requirements on every offload tier: one suite over all of ours, with the settings that change how
// they work.
#include <algorithm>
#include <numeric>
#include <thread>

#include "offload/support.h"

namespace gannet {
namespace {

using test::Bytes;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kBlock = 64 << 10;

struct Setting {
  std::string label, tier;
  Dict params;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.label; }

class OffloadTier : public testing::TestWithParam<Setting> {
 protected:
  OffloadTier() {
    Dict params = GetParam().params;
    if (GetParam().tier == "nvme") {
      params["nvme_path"] = folder_.string();
      if (!params.find("block_size")) params["block_size"] = static_cast<int64_t>(kBlock);
    }
    tier_ = test::open_tier(GetParam().tier, params);
  }
  void write(void* region, uint64_t offset, Bytes& bytes) {
    tier_->wait(tier_->write(region, offset, bytes.data(), bytes.size()));
  }
  Bytes read(void* region, uint64_t offset, uint64_t count) {
    Bytes bytes(count, 99);
    tier_->wait(tier_->read(region, offset, bytes.data(), count));
    return bytes;
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<Offload> tier_;
};

TEST_P(OffloadTier, ARegionReadsAsZerosUntilItIsWritten) {
  void* region = tier_->allocate(5 * kBlock, "zeros");
  EXPECT_TRUE(read(region, 0, 5 * kBlock).all_zero());
  Bytes bytes(kBlock);
  write(region, 2 * kBlock, bytes);
  EXPECT_TRUE(read(region, 0, 2 * kBlock).all_zero());
  EXPECT_TRUE(read(region, 3 * kBlock, 2 * kBlock).all_zero());
}

TEST_P(OffloadTier, WhatWasWrittenIsReadWhereverItLies) {
  constexpr uint64_t kRegion = 40 * kBlock + 3 * 4096;  // the last block is a part of one
  void* region = tier_->allocate(kRegion, "group_0/exp_avg");
  Bytes all(kRegion, 1);
  write(region, 0, all);
  EXPECT_TRUE(read(region, 0, kRegion) == all);
  uint64_t seed = 2;
  for (const auto& [offset, count] : std::vector<std::pair<uint64_t, uint64_t>>{{0, 4096},
                                                                                {4096, 4096},
                                                                                {kBlock - 4096, 8192},
                                                                                {3 * kBlock, kBlock},
                                                                                {5 * kBlock + 4096, 20 * kBlock},
                                                                                {40 * kBlock, 3 * 4096},
                                                                                {kRegion - 4096, 4096},
                                                                                {kRegion, 0}}) {
    Bytes part(count, seed++);
    if (count > 0) std::memcpy(all.data() + offset, part.data(), count);
    write(region, offset, part);
    EXPECT_TRUE(read(region, offset, count) == part) << offset << ' ' << count;
    EXPECT_TRUE(read(region, 0, kRegion) == all) << offset << ' ' << count;
  }
}

TEST_P(OffloadTier, ManyWorksAreInFlightAndWaitedForInAnyOrder) {
  constexpr uint64_t kParts = 60, kPart = 5 * kBlock / 2;
  std::mt19937 random(7);
  void* region = tier_->allocate(kParts * kPart, "parts");
  std::vector<Bytes> parts, got;
  std::vector<void*> works(kParts);
  for (uint64_t i = 0; i < kParts; ++i) parts.emplace_back(kPart, i);
  std::vector<uint64_t> order(kParts);
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < 5; ++round) {
    for (uint64_t i = 0; i < kParts; ++i) works[i] = tier_->write(region, i * kPart, parts[i].data(), kPart);
    std::shuffle(order.begin(), order.end(), random);
    for (const uint64_t i : order) tier_->wait(works[i]);

    // Odd parts are read while even ones are rewritten.
    got.clear();
    for (uint64_t i = 0; i < kParts; ++i) got.emplace_back(kPart, i % 2 ? 1000 : 100 * i + round);
    for (uint64_t i = 0; i < kParts; ++i)
      works[i] =
          i % 2 ? tier_->read(region, i * kPart, got[i].data(), kPart) : tier_->write(region, i * kPart, got[i].data(), kPart);
    std::shuffle(order.begin(), order.end(), random);
    for (const uint64_t i : order) tier_->wait(works[i]);
    for (uint64_t i = 1; i < kParts; i += 2) ASSERT_TRUE(got[i] == parts[i]) << i;
    for (uint64_t i = 0; i < kParts; i += 2) ASSERT_TRUE(read(region, i * kPart, kPart) == got[i]) << i;
  }
}

TEST_P(OffloadTier, SeveralThreadsUseItAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      for (int round = 0; round < 10; ++round) {
        void* region = tier_->allocate(6 * kBlock, "thread " + std::to_string(seed));
        Bytes bytes(6 * kBlock, seed * 100 + round);
        write(region, 0, bytes);
        if (!(read(region, 0, bytes.size()) == bytes)) ++wrong;
        tier_->release(region);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(OffloadTier, ReleasingAndEndingWaitForWhatIsInFlight) {
  Bytes bytes(64 * kBlock, 3), other(64 * kBlock, 4);
  void* region = tier_->allocate(64 * kBlock, "released");
  void* kept = tier_->allocate(64 * kBlock, "kept");
  void* work = tier_->write(region, 0, bytes.data(), bytes.size());
  tier_->release(region);
  tier_->wait(work);
  tier_->write(kept, 0, other.data(), other.size());
  tier_.reset();
  other.clear();  // no read of the buffer is pending
}

TEST_P(OffloadTier, ARangeOutsideTheRegionIsRefused) {
  void* region = tier_->allocate(4 * kBlock, "moments");
  Bytes bytes(2 * kBlock);
  const Error error = test::error_of([&] { tier_->read(region, 3 * kBlock, bytes.data(), 2 * kBlock); });
  EXPECT_EQ(error.code(), ErrorCode::kArgument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("read of 131072 bytes at offset 196608 of region 'moments'"),
                                     HasSubstr("the region ends at 262144")));
  EXPECT_EQ(test::error_of([&] { tier_->write(region, UINT64_MAX - 4095, bytes.data(), 8192); }).code(), ErrorCode::kArgument);
  EXPECT_THAT(test::error_of([&] { tier_->write(region, 0, nullptr, 8192); }).message(), HasSubstr("the buffer is null"));
}

TEST_P(OffloadTier, ARequestThatIsNotAlignedIsRefusedWhereTheTierWantsItAligned) {
  void* region = tier_->allocate(4 * kBlock, "moments");
  Bytes bytes(2 * kBlock);
  if (tier_->alignment_bytes() == 1) {  // then any place and size comes back as it was written
    Bytes odd(1237, 9), back(1237);
    tier_->wait(tier_->write(region, 513, odd.data() + 3, 1200));
    tier_->wait(tier_->read(region, 513, back.data() + 3, 1200));
    EXPECT_EQ(std::memcmp(odd.data() + 3, back.data() + 3, 1200), 0);
    return;
  }
  const auto message = [&](uint64_t offset, char* buffer, uint64_t count) {
    const Error error = test::error_of([&] { tier_->write(region, offset, buffer, count); });
    EXPECT_EQ(error.code(), ErrorCode::kArgument);
    return error.message();
  };
  EXPECT_THAT(message(512, bytes.data(), 4096), HasSubstr("the offset is not a multiple of 4096, this tier's alignment"));
  EXPECT_THAT(message(0, bytes.data(), 5000), HasSubstr("the size is not a multiple of 4096"));
  EXPECT_THAT(message(0, bytes.data() + 512, 4096), HasSubstr("the buffer's address is not a multiple of 4096"));
}

TEST_P(OffloadTier, ARegionMayBeEmptyAndOfAnySize) {
  tier_->release(tier_->allocate(0, "empty"));
  void* region = tier_->allocate(1000, "small");
  Bytes bytes(tier_->alignment_bytes() == 1 ? 1000 : 4096, 5);
  write(region, 0, bytes);
  EXPECT_TRUE(read(region, 0, bytes.size()) == bytes);
}

INSTANTIATE_TEST_SUITE_P(All, OffloadTier,
                         testing::Values(Setting{"Cpu", "cpu", {}}, Setting{"Nvme", "nvme", {}},
                                         Setting{"NvmeOneByOne", "nvme", {{"single_submit", true}, {"queue_depth", 1}}},
                                         Setting{"NvmeInBatches", "nvme", {{"overlap_events", false}, {"queue_depth", 5}}},
                                         Setting{"NvmeFourThreads", "nvme", {{"intra_op_parallelism", 4}, {"queue_depth", 3}}},
                                         Setting{"NvmeWithoutChecksums", "nvme", {{"checksum", false}}},
                                         Setting{"NvmeSmallBlocks", "nvme", {{"block_size", 4096}, {"queue_depth", 64}}},
                                         Setting{"NvmeLargeBlocks", "nvme", {{"block_size", 8 << 20}}}),
                         [](const auto& info) { return info.param.label; });

TEST(OffloadCpu, ARegionIsWorkedOnInPlaceFromAPageOn) {
  const auto tier = test::open_tier("cpu", {});
  std::vector<char*> starts;
  for (const uint64_t bytes : {100ul, 5000ul, 4ul << 20, 4ul << 20, 4ul << 20}) {
    void* region = tier->allocate(bytes, "in place");
    char* address = static_cast<char*>(tier->address(region));
    ASSERT_NE(address, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 4096, 0u);
    address[bytes - 1] = 42;
    char byte = 0;
    tier->wait(tier->read(region, bytes - 1, &byte, 1));
    EXPECT_EQ(byte, 42);
    starts.push_back(address);
  }
  // Large ones of equal size do not begin at equal distances from a huge page.
  EXPECT_NE(reinterpret_cast<uintptr_t>(starts[3]) % (2 << 20), reinterpret_cast<uintptr_t>(starts[4]) % (2 << 20));
}

TEST(OffloadCpu, MemoryThatIsNotThereIsToldWithTheRegionsName) {
  const auto tier = test::open_tier("cpu", {});
  const Error error = test::error_of([&] { tier->allocate(uint64_t{1} << 60, "exp_avg_sq"); });
  EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("no host memory for region 'exp_avg_sq' of 1152921504606846976 bytes"),
                                     HasSubstr("offload to \"nvme\"")));
}

}  // namespace
}  // namespace gannet
