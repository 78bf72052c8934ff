// "gannet": {"debug_plugins": true} in a real engine: the planted defects of tests/kit/bad are named, and a sound plugin computes
// what it computes without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models.h"
#include "plugin/support.h"

namespace gannet {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;

struct Setting {
  std::string label;
  int stage;
  std::string tier;  // of the optimizer's states; "": the device
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.label; }

class DebugPlugins : public testing::TestWithParam<Setting> {
 protected:
  Dict config(const std::string& optimizer, bool debug) const {
    Dict zero{{"stage", GetParam().stage}};
    if (!GetParam().tier.empty()) zero["offload_optimizer"] = Dict{{"device", GetParam().tier}};
    return Dict{{"train_batch_size", 4},
                {"optimizer", Dict{{"type", optimizer}, {"params", Dict{{"lr", 0.01}}}}},
                {"zero_optimization", zero},
                {"accelerator", Dict{{"type", "cpu"}}},
                {"plugins", Dict{{"path", List{KIT_BAD}}}},
                {"gannet", Dict{{"debug_plugins", debug}}}};
  }
  std::vector<at::Tensor> train(const std::string& optimizer, bool debug = true) const {
    auto net = make_net();
    auto engine = initialize(net, {.config = config(optimizer, debug)}).engine;
    for (int64_t step = 0; step < 3; ++step) {
      auto [x, y] = make_batch(step, 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    std::vector<at::Tensor> parameters;
    for (const auto& parameter : net->parameters()) parameters.push_back(parameter.detach().clone());
    return parameters;
  }
  std::string fault_of(const std::string& optimizer) const {
    const Error error = test::error_of([&] { train(optimizer); });
    EXPECT_EQ(error.code(), ErrorCode::kPluginFault) << error.what();
    EXPECT_THAT(error.next_step(), HasSubstr("fault of the plugin")) << error.what();
    EXPECT_THAT(error.next_step(), HasSubstr(" 1.0,"));  // its version
    return error.message();
  }
};

TEST_P(DebugPlugins, ASoundPluginComputesTheSame) {
  for (const char* optimizer : {"Sound", "AdamW", "Lamb"}) {
    const auto watched = train(optimizer), plain = train(optimizer, false);
    ASSERT_EQ(watched.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(watched[i], plain[i])) << optimizer << ' ' << i;
  }
}

TEST_P(DebugPlugins, AWriteToTheGradientIsNamed) {
  const std::string found = fault_of("WritesGrad");
  EXPECT_THAT(found, AllOf(HasSubstr("optimizer plugin WritesGrad 1.0 ("), HasSubstr("gannet_bad_manners.so"),
                           HasSubstr("wrote to the gradient, which this call only reads: tensor '"), HasSubstr("element "),
                           HasSubstr("in update of step 1")));
}

TEST_P(DebugPlugins, AWriteBesideAnArrayIsNamed) {
  EXPECT_THAT(fault_of("Overruns"),
              AllOf(HasSubstr("wrote to byte 1 after the end of the state 'momentum'"), HasSubstr("tensor '")));
  EXPECT_THAT(fault_of("Underruns"),
              AllOf(HasSubstr("wrote to byte 4 before the begin of the parameter"), HasSubstr("tensor '")));
}

TEST_P(DebugPlugins, AStateThatIsNoElementsIsOnlyReadInUpdate) {
  EXPECT_THAT(fault_of("LateState"), AllOf(HasSubstr("wrote to the state 'norm', which this call only reads"),
                                           HasSubstr("that of tensor '"), HasSubstr("in update of step 1")));
}

TEST_P(DebugPlugins, SumsOnlyRead) {
  EXPECT_THAT(fault_of("BusySums"), AllOf(HasSubstr("wrote to the state 'momentum'"), HasSubstr("in sums of step 2")));
}

TEST_P(DebugPlugins, WithoutItTheSameDefectsTrain) {
  EXPECT_EQ(train("WritesGrad", false).size(), 4u);
  EXPECT_EQ(train("LateState", false).size(), 4u);
}

INSTANTIATE_TEST_SUITE_P(All, DebugPlugins,
                         testing::Values(Setting{"Stage0", 0, ""}, Setting{"Stage2", 2, ""}, Setting{"Stage2OnCpu", 2, "cpu"}),
                         [](const auto& info) { return info.param.label; });

}  // namespace
}  // namespace gannet
