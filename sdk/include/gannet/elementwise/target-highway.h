// The Highway targets: the file with the rules is included once per target (foreach_target).
#if !__has_include(__BASE_FILE__)
#error \
    "a file of rules includes itself, once per kind of SIMD, and its path was given relative to the current folder: add -iquote ."
#endif
// Targets that the loops do not support: the size of SVE's vectors is unknown at compile time.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE __BASE_FILE__
#include <hwy/foreach_target.h>
// The rest must come after foreach_target, as Highway requires.
#ifndef GANNET_DEVICE
#define GANNET_DEVICE HWY_INLINE  // lanes must not be passed in memory, nor to functions compiled for a different target
#endif
#include <gannet/elementwise/loop-inl.h>

#undef GANNET_RULE_TARGET
#undef GANNET_RULE_TARGET_BEGIN
#undef GANNET_RULE_TARGET_END
#undef GANNET_RULE_IS_LAST
#undef GANNET_RULE_DEVICE
#undef GANNET_RULE_KERNEL
#define GANNET_RULE_TARGET HWY_NAMESPACE
#define GANNET_RULE_TARGET_BEGIN HWY_BEFORE_NAMESPACE();
#define GANNET_RULE_TARGET_END HWY_AFTER_NAMESPACE();
#define GANNET_RULE_DEVICE "cpu"

#define GANNET_RULE_RUN_(Family_, Name_)                                                                               \
  GANNET_RULES_BEGIN                                                                                                   \
  inline void Name_##Run(sdk::detail::RulePass pass, const Step& step, const gannet_update_args& args, uint64_t begin, \
                         uint64_t end, double* sums) {                                                                 \
    run_family<Family_>(pass, step, args, begin, end, sums);                                                           \
  }                                                                                                                    \
  GANNET_RULES_END

#if HWY_ONCE
#define GANNET_RULE_IS_LAST 1
#define GANNET_RULE_KERNEL(Family_, Name_)                                                                             \
  GANNET_RULE_RUN_(Family_, Name_)                                                                                     \
  namespace gannet::rules {                                                                                            \
  HWY_EXPORT(Name_##Run);                                                                                              \
  struct Name_##Kernel : sdk::detail::HostKernel<HWY_NAMESPACE::Family_, Name_##Kernel> {                              \
    static void run(sdk::detail::RulePass pass, const sdk::Step& step, const gannet_update_args& args, uint64_t begin, \
                    uint64_t end, double* sums) {                                                                      \
      HWY_DYNAMIC_DISPATCH(Name_##Run)(pass, step, args, begin, end, sums);                                            \
    }                                                                                                                  \
  };                                                                                                                   \
  using Name_##Optimizer = sdk::detail::ElementwiseOptimizer<HWY_NAMESPACE::Family_, Name_##Kernel>;                   \
  }
#else
#define GANNET_RULE_IS_LAST 0
#define GANNET_RULE_KERNEL(Family_, Name_) GANNET_RULE_RUN_(Family_, Name_)
#endif
