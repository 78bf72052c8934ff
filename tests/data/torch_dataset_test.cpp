#include <gannet/data.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

namespace gannet {
namespace {

namespace datasets = torch::data::datasets;
using torch::data::transforms::Stack;

struct Squares : datasets::Dataset<Squares> {
  Example get(size_t index) override {
    if (index == bad) throw std::runtime_error("unreadable");
    const double number = static_cast<double>(index);
    return {torch::full({2}, number), torch::full({}, number * number)};
  }
  std::optional<size_t> size() const override { return 6; }
  size_t bad = 1000;
};

struct Unlabelled : datasets::Dataset<Unlabelled, torch::data::TensorExample> {
  torch::data::TensorExample get(size_t index) override { return torch::full({2}, static_cast<double>(index)); }
  std::optional<size_t> size() const override { return 6; }
};

// A reader of several samples at once, as one over a database would be.
struct Bulk : datasets::Dataset<Bulk> {
  Example get(size_t) override { throw std::logic_error("get is slow: get_batch is there"); }
  std::vector<Example> get_batch(at::ArrayRef<size_t> indices) override {
    std::vector<Example> examples;
    for (const size_t index : indices) examples.push_back({torch::full({2}, static_cast<double>(index)), torch::zeros({})});
    return examples;
  }
  std::optional<size_t> size() const override { return 6; }
};

struct Chunks : datasets::StatefulDataset<Chunks> {
  std::optional<std::vector<Example>> get_batch(size_t count) override {
    if (given >= 5) return std::nullopt;
    std::vector<Example> examples;
    for (; examples.size() < count && given < 5; ++given)
      examples.push_back({torch::full({2}, static_cast<double>(given)), torch::zeros({})});
    return examples;
  }
  std::optional<size_t> size() const override { return std::nullopt; }
  void reset() override { given = 0; }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  int given = 0;
};

const LoaderOptions kInOrder{.batch_size = 4, .shuffle = false};

// First number of every sample of an epoch.
template <class Loader>
std::vector<double> firsts(Loader& loader) {
  std::vector<double> all;
  for (auto& batch : loader)
    for (int64_t i = 0; i < batch.data.size(0); ++i) all.push_back(batch.data[i][0].template item<double>());
  return all;
}
const std::vector<double> kSix{0, 1, 2, 3, 4, 5};

TEST(TorchDataset, OfExamplesIsStackedByDefault) {
  auto loader = make_loader<Example>(Squares(), kInOrder);
  auto batch = loader->begin();
  EXPECT_EQ(batch->data.sizes(), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(batch->target.sizes(), (std::vector<int64_t>{4}));
  EXPECT_EQ(batch->target[3].item<double>(), 9);
  EXPECT_EQ(firsts(*loader), kSix);
}

TEST(TorchDataset, IsTakenAsALvalueASharedPointerOrOneThatIsMapped) {
  Squares squares;
  EXPECT_EQ(firsts(*make_loader<Example>(squares, kInOrder)), kSix);
  EXPECT_EQ(firsts(*make_loader<Example>(std::make_shared<Squares>(), kInOrder)), kSix);
  auto mapped = Squares().map(Stack<>());
  EXPECT_EQ(firsts(*make_loader<Example>(mapped, kInOrder)), kSix);
  auto shared = datasets::make_shared_dataset<Squares>();
  EXPECT_EQ(firsts(*make_loader<Example>(shared, kInOrder)), kSix);
}

TEST(TorchDataset, WithoutTargetsIsStackedToo) {
  EXPECT_EQ(firsts(*make_loader<torch::data::TensorExample>(Unlabelled(), kInOrder)), kSix);
}

TEST(TorchDataset, OfTensorsInMemoryIsRead) {
  auto loader = make_loader<torch::data::TensorExample>(datasets::TensorDataset(torch::arange(6.0).unsqueeze(1)), kInOrder);
  EXPECT_EQ(firsts(*loader), kSix);
}

TEST(TorchDataset, ThatReadsManyAtOnceIsAskedSo) { EXPECT_EQ(firsts(*make_loader<Example>(Bulk(), kInOrder)), kSix); }

TEST(TorchDataset, WithAStateIsAStreamThatIsResetEveryEpoch) {
  auto loader = make_loader<Example>(Chunks(), kInOrder);
  EXPECT_EQ(firsts(*loader), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(firsts(*loader), (std::vector<double>{0, 1, 2, 3, 4}));
}

TEST(TorchDataset, NamesTheVerySampleThatFailed) {
  Squares broken;
  broken.bad = 2;
  auto loader = make_loader<Example>(broken, kInOrder);
  try {
    loader->begin();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "reading sample 2 of the dataset failed: unreadable");
  }
}

TEST(TorchDataset, NamesTheSamplesOfAMappedBatchThatFailed) {
  Squares broken;
  broken.bad = 2;
  auto loader = make_loader<Example>(broken.map(Stack<>()), kInOrder);
  try {
    loader->begin();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "reading samples 0, 1, 2, 3 of the dataset failed: unreadable");
  }
}

TEST(TorchDataset, IsCollatedByALambdaOrByATorchTransform) {
  Collate<at::Tensor> means = [](std::vector<Example> samples) {
    at::Tensor sum = torch::zeros({2});
    for (const Example& sample : samples) sum += sample.data;
    return sum / static_cast<double>(samples.size());
  };
  EXPECT_EQ((*make_loader<at::Tensor>(Squares(), means, kInOrder)->begin())[0].item<double>(), 1.5);
  EXPECT_EQ(firsts(*make_loader<Example>(Squares(), Stack<>(), kInOrder)), kSix);
}

TEST(TorchDataset, ToDeviceLooksIntoAnExample) {
  const Example moved = to_device(Squares().get(1), at::kMeta);
  EXPECT_TRUE(moved.data.is_meta() && moved.target.is_meta());
}

TEST(Dataset, IsMadeFromBracesAsInitializeWritesIt) {
  struct Options {
    Dataset<> training_data = {};
    Collate<> collate_fn = {};
  };
  Squares squares;
  const Options given{.training_data = squares}, none{};
  EXPECT_FALSE(given.training_data.empty());
  EXPECT_TRUE(none.training_data.empty() && none.collate_fn.empty());
}

}  // namespace
}  // namespace gannet
