// The views of optimizer and scheduler over their C tables, and the host table that plugins are given.
#include <gmock/gmock.h>

#include "interfaces/host.h"
#include "interfaces/optimizer.h"
#include "interfaces/scheduler.h"
#include "plugin/support.h"

namespace gannet {
namespace {

using plugin::parse_params;
using plugin::Registry;
using test::CapturedLog;
using test::error_of;
using testing::AllOf;
using testing::Each;
using testing::FloatNear;
using testing::HasSubstr;
using testing::StartsWith;

const plugin::Plugin& find(gannet_kind kind, const char* name) {
  static Registry& registry = *new Registry({.explicit_paths = {PROBE_PLUGIN}});
  return registry.require(kind, name);
}

struct Made {
  explicit Made(const char* name, const Dict& params = {})
      : plugin(find(GANNET_KIND_OPTIMIZER, name)), optimizer(plugin, parse_params(plugin, params, {}), host) {
    optimizer.describe({.tensors = {{"weight", 7, {2, 3}, 6}}});
  }
  const plugin::Plugin& plugin;
  Host host;
  Optimizer optimizer;
};

// One range of fp32, and its arguments.
struct Range {
  explicit Range(const Optimizer& optimizer, size_t numel)
      : param(numel, 1.f), grad(numel, 2.f), hyper(optimizer.hyper_values()) {
    args.struct_size = sizeof(args);
    args.param_dtype = args.grad_dtype = GANNET_FLOAT32;
    args.numel = numel;
    args.param = param.data();
    args.grad = grad.data();
    args.grad_scale = 0.5;
    args.step = 1;
    args.hyper = hyper.data();
    args.hyper_count = hyper.size();
  }
  std::vector<float> param, grad;
  std::vector<double> hyper;
  gannet_update_args args{};
};

TEST(OptimizerView, TellsStatesAndHyperparameters) {
  Made made("probe", {{"lr", 0.25}});
  ASSERT_EQ(made.optimizer.states().size(), 3u);
  EXPECT_EQ(made.optimizer.states()[0].name, "exp_avg");
  EXPECT_EQ(made.optimizer.states()[1].extent, GANNET_STATE_PER_TENSOR);
  EXPECT_EQ(made.optimizer.states()[1].initial_value, 1);
  EXPECT_EQ(made.optimizer.states()[2].dtype, GANNET_INT64);
  EXPECT_EQ(made.optimizer.hyper_names()[0], "lr");
  EXPECT_EQ(made.optimizer.hyper_values()[0], 0.25);
  EXPECT_TRUE(made.optimizer.has(GANNET_OPTIMIZER_ELEMENTWISE));
  EXPECT_EQ(made.optimizer.hyper_roles()[0], GANNET_ROLE_LEARNING_RATE);
  EXPECT_EQ(made.optimizer.hyper_roles()[2], GANNET_ROLE_BETA2);
  EXPECT_TRUE(made.optimizer.sums().empty());
}

TEST(OptimizerView, UpdatesOnTheHostsThreads) {
  Made made("probe", {{"lr", 0.25}});
  Range range(made.optimizer, 100'000);
  made.optimizer.update(range.args);
  EXPECT_THAT(range.param, Each(0.75f));
}

TEST(OptimizerView, AFailureCarriesThePluginsSentenceItsNameAndItsFile) {
  const auto update = [](const char* mode) {
    Made made("probe", {{"mode", mode}});
    Range range(made.optimizer, 100'000);
    made.optimizer.update(range.args);
  };
  const std::string head = "optimizer plugin Probe 1.2.3 (" PROBE_PLUGIN "), in update of step 1: ";
  auto error = error_of([&] { update("throw"); });
  EXPECT_EQ(error.code(), ErrorCode::kPluginFault);
  EXPECT_EQ(error.exit_code(), 71);
  EXPECT_EQ(error.message(), head + "the gradient looks at you strangely");
  EXPECT_THAT(error.next_step(), HasSubstr("a fault of the plugin Probe 1.2.3, not of the config"));
  error = error_of([&] { update("fail"); });
  EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(error.message(), head + "no room for the moment");
  error = error_of([&] { update("late_fail"); });
  EXPECT_EQ(error.code(), ErrorCode::kIo) << "the status of one chunk is the loop's";
  EXPECT_EQ(error.message(), head + "the last chunk is not there") << "and so is its reason";
}

TEST(OptimizerView, AFailureInCreateLeavesNothingBehind) {
  const auto error = error_of([] { Made("probe", {{"nesterov", true}}); });
  EXPECT_EQ(error.code(), ErrorCode::kArgument);
  EXPECT_THAT(error.message(), HasSubstr("nesterov needs dampening: set it to 0"));
}

TEST(OptimizerView, UnsupportedTypesAreNamed) {
  Made made("probe");
  EXPECT_NO_THROW(made.optimizer.require_support(GANNET_FLOAT32, GANNET_FLOAT32, GANNET_DTYPE_NONE));
  const auto error = error_of([&] { made.optimizer.require_support(GANNET_FLOAT32, GANNET_BFLOAT16, GANNET_FLOAT16); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.message(), HasSubstr("does not take a fp32 parameter with a bf16 gradient and a fp16 copy: "));
}

// One tensor of 6 elements cut into two ranges: the sums of both make its norm.
TEST(OptimizerView, TensorSumsRunOverRanges) {
  Made made("sums");
  ASSERT_EQ(made.optimizer.sums().size(), 2u);
  EXPECT_EQ(made.optimizer.sums()[1].scope, GANNET_SUM_OF_TENSOR);
  EXPECT_FALSE(made.optimizer.needs_whole_tensors());
  const int64_t shape[] = {2, 3};
  Range first(made.optimizer, 4), second(made.optimizer, 2);
  double total[2] = {0, 0};
  gannet_segment segments[2]{};
  for (int i = 0; i < 2; ++i) {
    auto& range = i == 0 ? first : second;
    segments[i] = {sizeof(gannet_segment), 2, 0, 7, 0, range.param.size(), i == 0 ? 0u : 4u, 6, shape, "weight"};
    range.args.segments = &segments[i];
    range.args.segment_count = 1;
    range.args.segment_stride = sizeof(gannet_segment);
    double sums[2] = {0, 0};
    made.optimizer.sums(range.args, 0, sums);
    total[0] += sums[0];
    total[1] += sums[1];
  }
  EXPECT_EQ(total[0], 6 * 4.0);
  for (auto* range : {&first, &second}) {
    range->args.sums = total;
    range->args.sum_count = 2;
    made.optimizer.update(range->args);
    EXPECT_THAT(range->param, Each(FloatNear(1 - 2 / std::sqrt(24.f), 1e-6f)));
  }
}

TEST(SchedulerView, GivesTheFieldsThatThePluginSets) {
  const Host host;
  const auto& plugin = find(GANNET_KIND_SCHEDULER, "halving");
  const Scheduler halving(plugin, parse_params(plugin, {{"every", 10}}, {}), host, 1);
  Scheduler::Values base;
  base[GANNET_ROLE_LEARNING_RATE] = 0.8;
  EXPECT_EQ(halving.roles(), 1u << GANNET_ROLE_LEARNING_RATE);
  EXPECT_EQ(halving.at(0, 0, base, {})[GANNET_ROLE_LEARNING_RATE], 0.8);
  EXPECT_EQ(halving.at(25, 0, base, {})[GANNET_ROLE_LEARNING_RATE], 0.2);
  EXPECT_EQ(halving.at(25, 0, base, {})[GANNET_ROLE_BETA2], 0.99);
  EXPECT_EQ(halving.at(25, 0, base, {})[GANNET_ROLE_BETA1], std::nullopt);
  const Scheduler spoiled(plugin, parse_params(plugin, {{"every", 10}, {"spoil", true}}, {}), host, 1);
  EXPECT_THAT(error_of([&] { spoiled.at(3, 0, base, {}); }).message(), HasSubstr("gave a learning rate of nan for step 3"));
}

// ---- the host table --------------------------------------------------------------------------------------------------

struct TwoRanks : HostCollectives {
  void run(const gannet_host_collective& args) override {
    if (lost) throw Error(ErrorCode::kPeerLost, "rank 0 is gone");
    if (args.operation == GANNET_HOST_ALL_GATHER) throw std::runtime_error("gather");
    if (args.operation == GANNET_HOST_ALL_TO_ALL) throw 1;
    *static_cast<double*>(args.recv) += 1;
  }
  bool lost = false;
};

gannet_host_collective collective_of(gannet_host_operation operation) {
  gannet_host_collective args{};
  args.struct_size = sizeof(args);
  args.operation = operation;
  args.dtype = GANNET_FLOAT32;
  return args;
}

TEST(HostTable, ServesCollectivesInsideOfAStepsBeginAndEndOnly) {
  Made made("probe", {{"mode", "host"}});
  int64_t count = 0;
  void* states[] = {nullptr, nullptr, &count};
  gannet_step_args step{};
  step.states = states;
  step.state_count = 3;
  const CapturedLog log;
  EXPECT_THAT(error_of([&] { made.optimizer.begin_step(step); }).message(),
              HasSubstr("collectives were called outside of an optimizer's begin_step and end_step"));
  TwoRanks ranks;
  made.host.set_ranks(1, 2);
  const Host::OpenCollectives open(made.host, ranks);
  made.optimizer.begin_step(step);
  EXPECT_THAT(log.text(), AllOf(HasSubstr(" threads\n"), HasSubstr("probe: sum 3.000000 over 2\n")));
  EXPECT_EQ(count, 2);
  ranks.lost = true;
  const auto error = error_of([&] { made.optimizer.begin_step(step); });
  EXPECT_EQ(error.code(), ErrorCode::kPeerLost) << "the code passes through the plugin";
  EXPECT_THAT(error.message(), HasSubstr("rank 0 is gone"));
}

TEST(HostTable, NothingThrownByTheHostReachesAPlugin) {
  Host host;
  TwoRanks ranks;
  const Host::OpenCollectives open(host, ranks);
  plugin::ErrorBuffer error;
  const auto* table = host.table();
  auto args = collective_of(GANNET_HOST_ALL_GATHER);
  EXPECT_EQ(table->collective(table->context, &args, error), GANNET_INTERNAL);
  EXPECT_EQ(error.message(), "gather");
  args = collective_of(GANNET_HOST_ALL_TO_ALL);
  EXPECT_EQ(table->collective(table->context, &args, nullptr), GANNET_INTERNAL);
  args.group = 9;
  EXPECT_EQ(table->collective(table->context, &args, error), GANNET_UNSUPPORTED);
  EXPECT_EQ(error.message(), "a collective was asked for of an unknown group, 9");
  args.struct_size = 8;
  EXPECT_EQ(table->collective(table->context, &args, error), GANNET_INVALID_ARGUMENT);
  EXPECT_EQ(table->collective(table->context, nullptr, error), GANNET_INVALID_ARGUMENT);
  EXPECT_EQ(table->parallel_for(table->context, 0, 1, 1, nullptr, nullptr), GANNET_INVALID_ARGUMENT);
  const CapturedLog log;  // a body written without the SDK's wall, on the host's own threads
  EXPECT_EQ(table->parallel_for(
                table->context, 0, 1000, 1,
                [](void*, uint64_t, uint64_t) -> int32_t { throw std::runtime_error("a row \x1b[1mtoo many"); }, nullptr),
            GANNET_INTERNAL);
  EXPECT_THAT(log.text(), HasSubstr("loop body threw an exception across the contract: a row \\x1b[1mtoo many"));
  EXPECT_EQ(table->allocate(table->context, uint64_t{1} << 62, 64), nullptr);
  EXPECT_EQ(table->allocate(table->context, 64, 3 * 64), nullptr) << "an alignment is a power of two";
}

TEST(HostTable, ALongMessageIsCutToTheBuffer) {
  Host host;
  char text[8] = "xxxxxxx";
  gannet_error error{sizeof(gannet_error), 0, sizeof(text), text};
  const auto* table = host.table();
  const auto args = collective_of(GANNET_HOST_ALL_REDUCE);
  table->collective(table->context, &args, &error);
  EXPECT_STREQ(text, "the hos");
}

}  // namespace
}  // namespace gannet
