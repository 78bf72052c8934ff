// The mark of a plugin's call: what it says when the process ends, and the floating-point environment behind it.
#include "plugin/inside.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cfenv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "interfaces/host.h"
#include "interfaces/optimizer.h"
#include "support.h"

namespace gannet {
namespace {

using plugin::parse_params;
using plugin::PluginCallMark;
using plugin::Registry;
using test::CapturedLog;
using testing::AllOf;
using testing::ExitedWithCode;
using testing::HasSubstr;
using testing::KilledBySignal;
using testing::Not;

const plugin::Plugin& ends() {
  static Registry& registry = *new Registry({.explicit_paths = {HOSTILE_FOLDER "/gannet_hostile_ends.so"}});
  return registry.require(GANNET_KIND_OPTIMIZER, "Ends");
}

// The update with number `step` of 100,000 elements.
void update(const char* how, uint64_t step = 3) {
  Host host;
  Optimizer optimizer(ends(), parse_params(ends(), {{"how", how}}, {}), host);
  optimizer.describe({.tensors = {{"h.0.weight", 7, {100, 1000}, 100'000}}});
  std::vector<float> param(100'000, 1.f), grad(100'000, 2.f);
  const int64_t shape[] = {100, 1000};
  const gannet_segment segment{sizeof(gannet_segment), 2, 0, 7, 0, 100'000, 0, 100'000, shape, "h.0.weight"};
  gannet_update_args args{};
  args.struct_size = sizeof(args);
  args.param_dtype = args.grad_dtype = GANNET_FLOAT32;
  args.numel = param.size();
  args.param = param.data();
  args.grad = grad.data();
  args.grad_scale = 1;
  args.step = step;
  args.hyper = optimizer.hyper_values().data();
  args.hyper_count = 1;
  args.segments = &segment;
  args.segment_count = 1;
  args.segment_stride = sizeof(segment);
  optimizer.update(args);
}

constexpr const char* kWhere = "inside of optimizer plugin Ends 1.2, update, step 3, tensor 'h.0.weight'";

TEST(InsideDeathTest, AnExitIsTheCodeOfAPluginsFaultAndSaysWhere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* how : {"exit", "exit_3", "exit_in_loop"})
    EXPECT_EXIT(update(how), ExitedWithCode(71), AllOf(HasSubstr("exit() was called"), HasSubstr(kWhere), HasSubstr("to do: ")))
        << how;
}

TEST(InsideDeathTest, AnExitOfTheProgramsHandlerOfASignalIsTheProgramsOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::signal(SIGUSR1, [](int) { std::exit(4); });
        update("raise");
      },
      ExitedWithCode(4), Not(HasSubstr("inside of")));
}

TEST(InsideDeathTest, AnExitOfAForkedChildAndOneBetweenCallsAreNoFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        update("fork");
        std::exit(0);
      },
      ExitedWithCode(0), Not(HasSubstr("inside of")));
}

TEST(InsideDeathTest, AFatalSignalIsToldWhereThatIsAskedForAndStaysFatal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto told = [](const char* how) {
    plugin::tell_fatal_signals();
    update(how);
  };
  EXPECT_EXIT(told("segv"), KilledBySignal(SIGSEGV), HasSubstr(kWhere));
  EXPECT_EXIT(told("abort"), KilledBySignal(SIGABRT), HasSubstr(kWhere));
  EXPECT_EXIT(update("segv"), KilledBySignal(SIGSEGV), Not(HasSubstr("inside of"))) << "a library owns no signals";
  EXPECT_EXIT(  // nor those of the program
      {
        std::signal(SIGABRT, [](int) { std::_Exit(5); });
        told("abort");
      },
      ExitedWithCode(5), "");
}

TEST(Inside, TheFloatingPointEnvironmentIsPutBackBehindACallAndItsPluginNamed) {
  const FloatEnvironment before = FloatEnvironment::now();
  for (const auto& [how, what] : {std::pair("round", "the rounding mode is another"), std::pair("flush", "denormal numbers")}) {
#if !defined(__x86_64__)
    if (std::string(how) == "flush") continue;
#endif
    CapturedLog log;
    update(how);
    EXPECT_TRUE(FloatEnvironment::now() == before) << how;
    EXPECT_EQ(std::fegetround(), FE_TONEAREST) << how;
    if (std::string(how) == "round")  // once for a plugin and a call
      EXPECT_THAT(log.text(), AllOf(HasSubstr("optimizer plugin Ends 1.2 changed"), HasSubstr("in update"), HasSubstr(what)));
  }
}

#if defined(__x86_64__)
TEST(Inside, ThreadsOfTheHostsLoopComputeAsBefore) {
  update("flush_in_loop");
  volatile double tiny = 1e-310;
  std::atomic<int> flushed{0};
  Host host;
  struct Argument {
    volatile double* tiny;
    std::atomic<int>* flushed;
  } argument{&tiny, &flushed};
  host.table()->parallel_for(
      host.table()->context, 0, 100'000, 1,
      [](void* given, uint64_t, uint64_t) -> int32_t {
        auto& [number, count] = *static_cast<Argument*>(given);
        if (*number * 0.5 == 0) ++*count;
        return GANNET_OK;
      },
      &argument);
  EXPECT_EQ(flushed, 0);
}

TEST(Inside, AFileThatSwitchesDenormalsOffWhenItIsOpenedDoesSoForNobody) {
  const FloatEnvironment before = FloatEnvironment::now();
  CapturedLog log;
  Registry registry({.explicit_paths = {HOSTILE_FOLDER "/gannet_hostile_fast.so"}});
  registry.require(GANNET_KIND_OPTIMIZER, "Fast");
  EXPECT_TRUE(FloatEnvironment::now() == before);
  volatile float tiny = 1e-40f;
  EXPECT_GT(tiny * 0.5f, 0.f);
  EXPECT_THAT(log.text(),
              AllOf(HasSubstr("gannet_hostile_fast.so"), HasSubstr("denormal numbers count as 0"), HasSubstr("-ffast-math")));
}
#endif

TEST(Inside, CallsLieWithinEachOther) {
  EXPECT_EQ(PluginCallMark::current(), nullptr);
  {
    const PluginCallMark outer(ends(), {"begin_step", 4});
    {
      const PluginCallMark inner(ends(), {"update", 4, "w"});
      EXPECT_EQ(PluginCallMark::current(), &inner);
    }
    EXPECT_EQ(PluginCallMark::current(), &outer);
    char text[200];
    outer.write(text, sizeof(text));
    EXPECT_STREQ(text, "inside of optimizer plugin Ends 1.2, begin_step, step 4");
    EXPECT_EQ(outer.write(text, 10), 9u) << "cut, and ended";
  }
  EXPECT_EQ(PluginCallMark::current(), nullptr);
}

}  // namespace
}  // namespace gannet
