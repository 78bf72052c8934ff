// Which layers are computed again: the arithmetic, against a plain count of what is held at each moment.
#include "activation/cuts.h"

#include <gmock/gmock.h>

#include <random>

namespace gannet::activation {
namespace {

using testing::ElementsAre;

std::vector<size_t> sizes(const std::vector<LayerGroup>& groups) {
  std::vector<size_t> result;
  size_t next = 0;
  for (const LayerGroup& group : groups) {
    EXPECT_EQ(group.begin, next);
    next = group.end;
    result.push_back(group.end - group.begin);
  }
  return result;
}

TEST(Cuts, AreEven) {
  EXPECT_THAT(sizes(even_groups(12, 5)), ElementsAre(3, 3, 2, 2, 2));
  EXPECT_THAT(sizes(even_groups(12, 1)), ElementsAre(12));
  EXPECT_THAT(sizes(even_groups(3, 7)), ElementsAre(1, 1, 1));
  EXPECT_TRUE(even_groups(0, 3).empty());
  EXPECT_THAT(sizes(groups_of(7, 3)), ElementsAre(3, 3, 1));
  EXPECT_THAT(sizes(groups_of(2, 9)), ElementsAre(2));
}

TEST(Cuts, LeaveLayersBetweenRegionsTogether) {
  EXPECT_THAT(single_regions({false, false, true, true, false}),
              ElementsAre(LayerGroup{0, 2, false}, LayerGroup{2, 3, true}, LayerGroup{3, 4, true}, LayerGroup{4, 5, false}));
}

// Forward, then backward, with each layer's tensors in a set.
int64_t counted_peak(const std::vector<MeasuredLayer>& layers, const std::vector<bool>& is_region) {
  int64_t live = 0, peak = 0;
  for (size_t i = 0; i < layers.size(); ++i) live += layers[i].input_bytes + (is_region[i] ? 0 : layers[i].saved_bytes);
  peak = live;
  for (size_t i = layers.size(); i-- > 0;) {
    if (is_region[i]) live += layers[i].saved_bytes;
    peak = std::max(peak, live);
    live -= layers[i].saved_bytes + layers[i].input_bytes;
  }
  EXPECT_EQ(live, 0);
  return peak;
}

TEST(TheChoice, KeepsThePeakUnderTheLimitAndNoMoreThanNeeded) {
  std::mt19937 random(1);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)); };
  for (int round = 0; round < 200; ++round) {
    std::vector<MeasuredLayer> layers(1 + random() % 12);
    for (auto& layer : layers) layer = {"", upto(10), upto(100), static_cast<double>(upto(20)) / 10};
    const int64_t all = counted_peak(layers, std::vector<bool>(layers.size(), false));
    const int64_t none = counted_peak(layers, std::vector<bool>(layers.size(), true));
    const int64_t limit = upto(all + 10);
    const Choice choice = choose(layers, limit);
    EXPECT_EQ(choice.peak_bytes, counted_peak(layers, choice.is_region));
    EXPECT_EQ(choice.peak_bytes_without, all);
    if (limit >= none) {
      EXPECT_LE(choice.peak_bytes, limit);
    } else {
      EXPECT_EQ(choice.peak_bytes, none) << "as far as it goes";
    }
    // The worst of those that were chosen is needed: the choice is a prefix of the order.
    double worst = 1e9;
    size_t last = layers.size();
    double seconds = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!choice.is_region[i]) continue;
      seconds += layers[i].seconds;
      EXPECT_GT(layers[i].saved_bytes, 0);
      const double ratio = layers[i].seconds == 0 ? 1e8 : static_cast<double>(layers[i].saved_bytes) / layers[i].seconds;
      if (ratio <= worst) worst = ratio, last = i;
    }
    EXPECT_NEAR(choice.seconds, seconds, 1e-9);
    for (size_t i = 0; i < layers.size(); ++i)
      if (!choice.is_region[i] && layers[i].saved_bytes > 0 && layers[i].seconds > 0 && last < layers.size())
        EXPECT_LE(static_cast<double>(layers[i].saved_bytes) / layers[i].seconds, worst + 1e-9);
    if (last < layers.size()) {
      std::vector<bool> fewer = choice.is_region;
      fewer[last] = false;
      EXPECT_GT(counted_peak(layers, fewer), limit);
    }
    EXPECT_EQ(choose(layers, limit).is_region, choice.is_region);
  }
}

}  // namespace
}  // namespace gannet::activation
