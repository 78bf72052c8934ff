// The target of GPUs: nvcc, or a HIP compiler, compiles the file with the rules once.
#include <gannet/elementwise/gpu.h>

#include <gannet/elementwise/loop.cuh>

#define GANNET_RULE_TARGET gpu
#define GANNET_RULE_TARGET_BEGIN
#define GANNET_RULE_TARGET_END
#define GANNET_RULE_DEVICE GANNET_GPU
#define GANNET_RULE_IS_LAST 1
#define GANNET_RULE_KERNEL(Family_, Name_)                                                                                    \
  namespace gannet::rules {                                                                                                   \
  struct Name_##Kernel {                                                                                                      \
    static void update(const sdk::HostServices&, const sdk::Step& step, const gannet_update_args& all) {                      \
      launch(sdk::detail::RulePass::kUpdate, step, all);                                                                      \
    }                                                                                                                         \
    static void evaluate(const sdk::HostServices&, const sdk::Step& step, const gannet_update_args& all) {                    \
      launch(sdk::detail::RulePass::kEvaluate, step, all);                                                                    \
    }                                                                                                                         \
    static void launch(sdk::detail::RulePass pass, const sdk::Step& step, const gannet_update_args& all) {                    \
      update_on_device(all, [&](const gannet_update_args& args) { return gpu::run_family<gpu::Family_>(pass, step, args); }); \
    }                                                                                                                         \
  };                                                                                                                          \
  using Name_##Optimizer = sdk::detail::ElementwiseOptimizer<gpu::Family_, Name_##Kernel>;                                    \
  }
