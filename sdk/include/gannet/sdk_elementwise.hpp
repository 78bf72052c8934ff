/// Builds an optimizer from a rule for one element; the SDK provides the loop. The same source is
/// compiled for a CPU (multithreaded, for every SIMD width that Highway supports; without Highway,
/// as plain loops with bit-identical results) and, by nvcc or a HIP compiler, for GPUs.
///
///   // lion.cpp: Lion (Chen et al. 2023, algorithm 2).
///   #include <gannet/sdk_elementwise.hpp>
///   GANNET_RULES_BEGIN
///   template <class T>
///   struct Lion {
///     static constexpr gannet_param_spec kParams[] = {learning_rate("1e-4"), betas("[0.9, 0.99]"), weight_decay()};
///     static constexpr const char* kStates[] = {"exp_avg"};
///     T lr, beta1, beta2, decay;
///     explicit Lion(const Step& s) : lr(s("lr")), beta1(s("betas", 0)), beta2(s("betas", 1)), decay(s("weight_decay")) {}
///     template <class V>
///     GANNET_DEVICE void operator()(V g, V& p, V& m) const {
///       p = p - lr * (sign(beta1 * m + (1 - beta1) * g) + decay * p);
///       m = beta2 * m + (1 - beta2) * g;
///     }
///   };
///   GANNET_RULES_END
///   GANNET_ELEMENTWISE_PLUGIN(Lion, "lion", "1.0.0", "Lion: the sign of an interpolated momentum")
///
/// That is the whole plugin: `gannet_add_plugin(lion KIND optimizer SOURCES lion.cpp)` builds it. T is the master's type, float
/// or double. V is one element or several at once: +, -, *, /, +=, -=, *=, /=, unary -, <, >, <=, >=, ==, !=, sqrt, abs, min,
/// max, sign, fma(a, b, c) = a * b + c rounded once, select(condition, a, b) in place of if and ?:, with conditions joined by &&,
/// ||, !. `g` is the gradient, already averaged, unscaled and clipped. Every operation is rounded separately.
///
/// The file is compiled once per target, so it must include this header first, include nothing with
/// side effects, and keep its rules between GANNET_RULES_BEGIN and GANNET_RULES_END. A rule may
/// also have
///   static std::vector<gannet_state_spec> states(const RuleParams&);      kStates first, then any others
///   static void check(const RuleParams&, const HostServices&);            throws Failure if the params are invalid
/// A struct that selects one of several rules by its params is a family. It has kParams, states(),
/// optionally check(), and
///   template <class T, class Run> static void with_rule(const Step& s, Run&& run) { run(SomeRule<T>(s)); }
/// and is declared with GANNET_ELEMENTWISE_FAMILY(Family). For several optimizers in a file, write
/// GANNET_ELEMENTWISE(Rule) for each, then
///   GANNET_ELEMENTWISE_PLUGINS("optimizer/a@" GANNET_RULE_DEVICE " optimizer/b@" GANNET_RULE_DEVICE,
///                              GANNET_ELEMENTWISE_OPTIMIZER(A, "A", "1.0.0", "..."), ...)
//
// There is no include guard, since the file is included once per target.
#include <gannet/sdk_rule.hpp>

#if defined(__CUDACC__) || defined(__HIP__)
#include <gannet/elementwise/target-gpu.h>
// GCC without optimisation does not inline lanes, and passes them by other conventions in caller and
// callee: plain loops there, with the same bits.
#elif defined(GANNET_RULE_HIGHWAY) && (defined(__OPTIMIZE__) || defined(__clang__))
#include <gannet/elementwise/target-highway.h>
#else
#include <gannet/elementwise/target-plain.h>
#endif

#undef GANNET_RULES_BEGIN
#undef GANNET_RULES_END
#define GANNET_RULES_BEGIN                      \
  GANNET_RULE_TARGET_BEGIN                      \
  namespace gannet::rules::GANNET_RULE_TARGET { \
  using namespace gannet::sdk;
#define GANNET_RULES_END \
  }                      \
  GANNET_RULE_TARGET_END

#include <gannet/elementwise/family-inl.h>

#undef GANNET_ELEMENTWISE
#undef GANNET_ELEMENTWISE_FAMILY
#undef GANNET_ELEMENTWISE_OPTIMIZER
#undef GANNET_ELEMENTWISE_PLUGINS
#undef GANNET_ELEMENTWISE_PLUGIN
#define GANNET_ELEMENTWISE(Rule_)               \
  namespace gannet::rules::GANNET_RULE_TARGET { \
  using Rule_##Family = FamilyOf<Rule_>;        \
  }                                             \
  GANNET_RULE_KERNEL(Rule_##Family, Rule_)
#define GANNET_ELEMENTWISE_FAMILY(Family_) GANNET_RULE_KERNEL(Family_, Family_)

#ifndef GANNET_GPU_VERSION  // see gpu_runtime.h; a plugin for the CPU has the version that it states
#define GANNET_GPU_VERSION(version_) version_
#define GANNET_GPU_NOTE ""
#endif

// Only the last pass over the file exports the optimizers.
#if GANNET_RULE_IS_LAST
#define GANNET_ELEMENTWISE_OPTIMIZER(Rule_, name_, version_, doc_)                                                 \
  gannet::sdk::optimizer<gannet::rules::Rule_##Optimizer>(name_, GANNET_RULE_DEVICE, GANNET_GPU_VERSION(version_), \
                                                          doc_ GANNET_GPU_NOTE)
#define GANNET_ELEMENTWISE_PLUGINS(provides_, ...) GANNET_PLUGINS(provides_, GANNET_TIER_STABLE, __VA_ARGS__)
#else
#define GANNET_ELEMENTWISE_OPTIMIZER(Rule_, name_, version_, doc_)
#define GANNET_ELEMENTWISE_PLUGINS(provides_, ...)
#endif
#define GANNET_ELEMENTWISE_PLUGIN(Rule_, name_, version_, doc_)         \
  GANNET_ELEMENTWISE(Rule_)                                             \
  GANNET_ELEMENTWISE_PLUGINS("optimizer/" name_ "@" GANNET_RULE_DEVICE, \
                             GANNET_ELEMENTWISE_OPTIMIZER(Rule_, name_, version_, doc_))
