#include "wire.h"

#include <gtest/gtest.h>

namespace {

using gannet_gloo::traffic;

TEST(GlooTraffic, ARingAllReduceSendsTwiceThePayloadButForOneShare) {
  EXPECT_EQ(traffic(GANNET_ALL_REDUCE, 4000, 1, 4, 0).sent, 6000u);  // 2 P (N-1) / N
  EXPECT_EQ(traffic(GANNET_ALL_REDUCE, 4000, 1, 2, 0).received, 4000u);
}

TEST(GlooTraffic, AllGatherAndAllToAllSendThePayloadToEachOtherRank) {
  EXPECT_EQ(traffic(GANNET_ALL_GATHER, 100, 0, 4, 0).sent, 300u);
  EXPECT_EQ(traffic(GANNET_ALL_TO_ALL, 100, 0, 4, 0).received, 300u);
}

TEST(GlooTraffic, AReduceScatterSendsEachPartOnce) { EXPECT_EQ(traffic(GANNET_REDUCE_SCATTER, 100, 0, 4, 0).sent, 300u); }

TEST(GlooTraffic, ABroadcastReachesEveryOtherRankOnce) {
  for (uint32_t size = 1; size <= 9; ++size)
    for (uint32_t root = 0; root < size; ++root) {
      uint64_t sent = 0, received = 0;
      for (uint32_t rank = 0; rank < size; ++rank) {
        sent += traffic(GANNET_BROADCAST, 10, rank, size, root).sent;
        received += traffic(GANNET_BROADCAST, 10, rank, size, root).received;
      }
      EXPECT_EQ(sent, 10 * (size - 1)) << size << " ranks, root " << root;
      EXPECT_EQ(received, 10 * (size - 1)) << size << " ranks, root " << root;
    }
}

TEST(GlooTraffic, ABarrierHasNoPayload) { EXPECT_EQ(traffic(GANNET_BARRIER, 0, 0, 4, 0).sent, 0u); }

}  // namespace
