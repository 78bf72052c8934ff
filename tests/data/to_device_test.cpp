#include <ATen/ops/ones.h>
#include <gannet/to_device.h>
#include <gtest/gtest.h>

#include <array>
#include <list>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace gannet {
namespace {

// The meta device is part of every LibTorch: a place other than the CPU, without hardware.
const at::Device kMeta(at::kMeta);
at::Tensor one() { return at::ones({2}); }

struct OfTheUser {
  at::Tensor hidden = one();
  OfTheUser to(at::Device device) const { return {hidden.to(device)}; }
};
struct WithData {
  at::Tensor data = one();
};
struct WithTarget {
  std::vector<at::Tensor> data{one()};
  int64_t target = 7;
};
struct Unknown {
  at::Tensor tensor = one();
};

TEST(ToDevice, MovesATensorAndLeavesAnUndefinedOne) {
  EXPECT_TRUE(to_device(one(), kMeta).is_meta());
  EXPECT_FALSE(to_device(at::Tensor(), kMeta).defined());
}

TEST(ToDevice, DoesNotCopyATensorThatIsThere) {
  const at::Tensor tensor = one();
  EXPECT_TRUE(to_device(tensor, at::kCPU).is_same(tensor));
}

TEST(ToDevice, LooksIntoContainersHoweverNested) {
  std::map<std::string, std::vector<at::Tensor>> nested{{"a", {one(), one()}}};
  EXPECT_TRUE(to_device(nested, kMeta).at("a")[1].is_meta());
  EXPECT_TRUE(nested.at("a")[1].is_cpu()) << "given as a copy";
  EXPECT_TRUE(to_device(std::unordered_map<int, at::Tensor>{{1, one()}}, kMeta).at(1).is_meta());
  EXPECT_TRUE(to_device(std::array<at::Tensor, 2>{one(), one()}, kMeta)[1].is_meta());
  EXPECT_TRUE(to_device(std::list<at::Tensor>{one()}, kMeta).front().is_meta());
  EXPECT_TRUE(to_device(std::optional<at::Tensor>(one()), kMeta)->is_meta());
  EXPECT_FALSE(to_device(std::optional<at::Tensor>(), kMeta));
  const auto pair = to_device(std::pair(std::string("name"), one()), kMeta);
  EXPECT_EQ(pair.first, "name");
  EXPECT_TRUE(pair.second.is_meta());
  const auto tuple = to_device(std::tuple(1, std::vector{std::optional(one())}, 2.5), kMeta);
  EXPECT_TRUE(std::get<1>(tuple)[0]->is_meta());
  EXPECT_EQ(std::get<2>(tuple), 2.5);
}

TEST(ToDevice, LooksIntoDataAndTarget) {
  EXPECT_TRUE(to_device(WithData{}, kMeta).data.is_meta());
  const WithTarget moved = to_device(WithTarget{}, kMeta);
  EXPECT_TRUE(moved.data[0].is_meta());
  EXPECT_EQ(moved.target, 7);
}

TEST(ToDevice, AsksATypeThatOffersTo) {
  EXPECT_TRUE(to_device(OfTheUser{}, kMeta).hidden.is_meta());
  EXPECT_TRUE(to_device(std::vector<OfTheUser>(2), kMeta)[1].hidden.is_meta());
}

TEST(ToDevice, LeavesEverythingElseAlone) {
  EXPECT_EQ(to_device(5, kMeta), 5);
  EXPECT_EQ(to_device(std::string("text"), kMeta), "text");
  EXPECT_EQ(to_device(std::vector<bool>{true, false}, kMeta), (std::vector<bool>{true, false}));
  EXPECT_EQ(to_device(std::set<int>{1, 2}, kMeta), (std::set<int>{1, 2}));
  EXPECT_TRUE(to_device(Unknown{}, kMeta).tensor.is_cpu());
  static_assert(!loading::carries_tensors<std::vector<int64_t>>());
  static_assert(!loading::carries_tensors<std::map<int, std::string>>());
}

}  // namespace
}  // namespace gannet
