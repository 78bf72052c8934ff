#include "wire.h"

#include <gtest/gtest.h>

namespace {

using gannet::sdk::Collective;

gannet_gloo::Traffic traffic(gannet_collective op, uint64_t bytes, uint32_t rank, uint32_t size, uint32_t peer) {
  Collective c{};
  c.op = op;
  c.dtype = GANNET_UINT8;
  c.count = bytes;
  c.peer = peer;
  c.rank = rank;
  c.size = size;
  return gannet_gloo::traffic(c);
}

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

TEST(GlooTraffic, PartsOfDifferentSizesAreCountedOneByOne) {
  const uint64_t counts[] = {10, 0, 30};
  Collective c{};
  c.op = GANNET_ALL_GATHER;
  c.dtype = GANNET_FLOAT32;
  c.recv_counts = counts;
  c.rank = 2;
  c.count = 30;
  c.size = 3;
  EXPECT_EQ(gannet_gloo::traffic(c).sent, 240u);  // to two ranks
  EXPECT_EQ(gannet_gloo::traffic(c).received, 40u);
}

TEST(GlooTraffic, ABarrierHasNoPayload) { EXPECT_EQ(traffic(GANNET_BARRIER, 0, 0, 4, 0).sent, 0u); }

}  // namespace
