// Plain loops that a compiler vectorises, for builds without Highway. On x86-64 the file with the
// rules is compiled twice: for CPUs with AVX2 and fused multiply-add, and for all others.
#ifndef GANNET_RULE_PASS
#if defined(__x86_64__) && defined(__GNUC__)
#define GANNET_RULE_PASS 1
#if !__has_include(__BASE_FILE__)
#error \
    "a file of rules includes itself, once per kind of SIMD, and its path was given relative to the current folder: add -iquote ."
#endif
#include __BASE_FILE__
#undef GANNET_RULE_PASS
#define GANNET_RULE_HAS_AVX2 1
#else
#define GANNET_RULE_HAS_AVX2 0
#endif
#define GANNET_RULE_PASS 2
#endif

#include <gannet/elementwise/scalar.h>

#include <cstring>
#include <gannet/sdk_float16.hpp>

#undef GANNET_RULE_TARGET
#undef GANNET_RULE_TARGET_BEGIN
#undef GANNET_RULE_TARGET_END
#undef GANNET_RULE_IS_LAST
#undef GANNET_RULE_DEVICE
#undef GANNET_RULE_KERNEL
#define GANNET_RULE_DEVICE "cpu"
#if GANNET_RULE_PASS == 1
#define GANNET_RULE_IS_LAST 0
#define GANNET_RULE_TARGET plain_avx2
#ifdef __clang__
#define GANNET_RULE_TARGET_BEGIN _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#define GANNET_RULE_TARGET_END _Pragma("clang attribute pop")
#else
#define GANNET_RULE_TARGET_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define GANNET_RULE_TARGET_END _Pragma("GCC pop_options")
#endif
#else
#define GANNET_RULE_IS_LAST 1
#define GANNET_RULE_TARGET plain
#define GANNET_RULE_TARGET_BEGIN
#define GANNET_RULE_TARGET_END
#endif

GANNET_RULE_TARGET_BEGIN
namespace gannet::rules::GANNET_RULE_TARGET {
#include <gannet/elementwise/plain-inl.h>
}  // namespace gannet::rules::GANNET_RULE_TARGET
GANNET_RULE_TARGET_END

#define GANNET_RULE_RUN_(Family_, Name_)                                                                               \
  GANNET_RULES_BEGIN                                                                                                   \
  inline void Name_##Run(sdk::detail::RulePass pass, const Step& step, const gannet_update_args& args, uint64_t begin, \
                         uint64_t end, double* sums) {                                                                 \
    run_family<Family_>(pass, step, args, begin, end, sums);                                                           \
  }                                                                                                                    \
  GANNET_RULES_END

#if GANNET_RULE_IS_LAST
#if GANNET_RULE_HAS_AVX2
#define GANNET_RULE_BEST_(Name_) \
  (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? plain_avx2::Name_##Run : plain::Name_##Run)
#else
#define GANNET_RULE_BEST_(Name_) plain::Name_##Run
#endif
#define GANNET_RULE_KERNEL(Family_, Name_)                                                                             \
  GANNET_RULE_RUN_(Family_, Name_)                                                                                     \
  namespace gannet::rules {                                                                                            \
  struct Name_##Kernel : sdk::detail::HostKernel<plain::Family_, Name_##Kernel> {                                      \
    static void run(sdk::detail::RulePass pass, const sdk::Step& step, const gannet_update_args& args, uint64_t begin, \
                    uint64_t end, double* sums) {                                                                      \
      (GANNET_RULE_BEST_(Name_))(pass, step, args, begin, end, sums);                                                  \
    }                                                                                                                  \
  };                                                                                                                   \
  using Name_##Optimizer = sdk::detail::ElementwiseOptimizer<plain::Family_, Name_##Kernel>;                           \
  }
#else
#define GANNET_RULE_KERNEL(Family_, Name_) GANNET_RULE_RUN_(Family_, Name_)
#endif
