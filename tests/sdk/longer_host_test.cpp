// The host, compiled against a header in which every struct has one field more, opens and uses the plugins of today: what a later
// minor of the ABI will do to them.
#include <gmock/gmock.h>

#include <cmath>

#include "interfaces/optimizer.h"
#include "interfaces/scheduler.h"
#include "plugin/note.h"

namespace gannet {
namespace {

static_assert(sizeof(gannet_optimizer_api) > GANNET_OPTIMIZER_API_SIZE_2_0, "this is the longer header");

plugin::Registry& registry() {
  static auto& all = *new plugin::Registry({.explicit_paths = {PLUGIN_FOLDER}});
  return all;
}

TEST(LongerHost, OpensEveryPluginOfToday) {
  int count = 0;
  for (const plugin::Candidate& candidate : registry().candidates()) {
    if (candidate.file.find(PLUGIN_FOLDER) != 0 || candidate.vendor != "") continue;
    EXPECT_EQ(candidate.rejected, "") << candidate.file;
    EXPECT_NO_THROW(registry().open_file(candidate.file)) << candidate.file;
    ++count;
  }
  EXPECT_GE(count, 12);
}

TEST(LongerHost, TakesADescribedStepOfAdamW) {
  const plugin::Plugin& plugin = registry().require(GANNET_KIND_OPTIMIZER, "AdamW", "cpu");
  const Host host;
  Optimizer adam(plugin, plugin::parse_params(plugin, {{"lr", 0.1}, {"weight_decay", 0.5}}, {}), host);
  adam.describe({.tensors = {{"weight", 1, {3}, 3}}});
  ASSERT_EQ(adam.states().size(), 2u);
  EXPECT_EQ(adam.hyper_roles()[0], GANNET_ROLE_LEARNING_RATE);
  float param[] = {1, 2, 3}, grad[] = {4, -5, 6}, first[3] = {}, second[3] = {};
  void* states[] = {first, second};
  gannet_update_args args{};
  args.struct_size = sizeof(args);
  args.param_dtype = args.grad_dtype = GANNET_FLOAT32;
  args.numel = 3;
  args.param = param;
  args.grad = grad;
  args.states = states;
  args.state_count = 2;
  args.grad_scale = 1;
  args.step = 1;
  args.hyper = adam.hyper_values().data();
  args.hyper_count = adam.hyper_values().size();
  adam.begin_step({});
  adam.update(args);
  adam.end_step({});
  // In its first step Adam moves by lr against the sign; the decay is lr * 0.5 of the value.
  EXPECT_NEAR(param[0], 1 - 0.1 - 0.05, 1e-6);
  EXPECT_NEAR(param[1], 2 + 0.1 - 0.10, 1e-6);
  EXPECT_NEAR(param[2], 3 - 0.1 - 0.15, 1e-6);
}

TEST(LongerHost, AsksAScheduleOfToday) {
  const plugin::Plugin& plugin = registry().require(GANNET_KIND_SCHEDULER, "WarmupLR");
  const Host host;
  const Scheduler warmup(
      plugin,
      plugin::parse_params(
          plugin, {{"warmup_min_lr", 0.0}, {"warmup_max_lr", 1.0}, {"warmup_num_steps", 4}, {"warmup_type", "linear"}}, {}),
      host, 1);
  EXPECT_EQ(warmup.at(3, 0, {}, {})[GANNET_ROLE_LEARNING_RATE], 0.5);
  EXPECT_EQ(warmup.at(9, 0, {}, {})[GANNET_ROLE_LEARNING_RATE], 1.0);
}

}  // namespace
}  // namespace gannet
