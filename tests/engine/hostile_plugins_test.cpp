// Plugins that turn against their program, under `gannet run`: nothing of it is a success in silence, and the plugin, its
// version, the call and the step are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <tuple>

#include "launched.h"

namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

const std::string kWhere = "inside of optimizer plugin Ends 1.2, update, step 3";

launched::Outcome train(int ranks, const std::string& how, int steps = 5, const std::string& checkpoint = "") {
  const launched::Folder folder("hostile_" + how);
  return launched::run(folder.path, ranks, "engine_ranks",
                       "out.bin 1 " + std::to_string(steps) + " hostile_" + how + " " + checkpoint);
}

TEST(HostilePlugins, AnEndOfTheProgramInsideOfOneIsNoSuccess) {
  for (const int ranks : {1, 2}) {
    const auto by_exit = train(ranks, "exit");
    EXPECT_EQ(by_exit.exit_code, 71) << by_exit.output;
    EXPECT_THAT(by_exit.output, HasSubstr("exit() was called " + kWhere));
    const auto at_once = train(ranks, "_exit");
    EXPECT_EQ(at_once.exit_code, 71) << at_once.output;
    EXPECT_THAT(at_once.output, HasSubstr("ended by _exit(0) " + kWhere));
  }
  const auto with_code = train(1, "_exit_3");
  EXPECT_EQ(with_code.exit_code, 3);
  EXPECT_THAT(with_code.output, AllOf(HasSubstr("the process ended " + kWhere), Not(HasSubstr("environment's fault"))));
}

TEST(HostilePlugins, AFatalSignalSaysInWhichCallItCame) {
  for (const auto& [how, number, name] :
       {std::tuple("segv", SIGSEGV, "SIGSEGV"), std::tuple("pthread_exit", SIGABRT, "SIGABRT")}) {
    const auto outcome = train(1, how);
    EXPECT_EQ(outcome.exit_code, 128 + number) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(std::string(name) + ": it came " + kWhere));
  }
}

TEST(HostilePlugins, AFaultNamesVersionCallStepAndTensor) {
  const auto outcome = train(2, "throw");
  EXPECT_EQ(outcome.exit_code, 71) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("optimizer plugin Ends 1.2 ("));
  EXPECT_THAT(outcome.output, HasSubstr("), in update of step 3, tensor 'first.weight': the third step is one too many"));
}

TEST(HostilePlugins, AMisusedCollectiveIsThePluginsFault) {
  const auto in_update = train(2, "collective");
  EXPECT_EQ(in_update.exit_code, 71) << in_update.output;
  EXPECT_THAT(in_update.output, AllOf(HasSubstr("optimizer plugin Ends 1.2 ("), HasSubstr("in update of step 3"),
                                      HasSubstr("a fault of the plugin Ends 1.2")));
  const auto alone = train(2, "alone");
  EXPECT_NE(alone.exit_code, 0) << alone.output;  // the other rank's time-out comes in the same moment
  // Its message may wait until the time-out, or meet another one of the rank that does not call: then Gloo ends the process.
  EXPECT_THAT(alone.output, AnyOf(AllOf(HasSubstr("in begin_step of step 3"), HasSubstr("do all ranks call it")),
                                  HasSubstr(", for optimizer plugin Ends 1.2, begin_step")));
}

TEST(HostilePlugins, DescriptionsThatDifferByRankAreFoundBeforeTheFirstStep) {
  const auto outcome = train(2, "describe");
  EXPECT_EQ(outcome.exit_code, 71) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("optimizer plugin Ends 1.2 ("), HasSubstr("in describe: the ranks differ in what"),
                                    HasSubstr("state 'other'")));
}

TEST(HostilePlugins, AStateOfTheGroupThatDiffersByRankIsFoundAtTheNextSave) {
  const auto outcome = train(2, "scalar", 5, "saved");
  EXPECT_NE(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("the ranks have different values of 'the state 'count' of optimizer plugin Ends 1.2"));
}

TEST(HostilePlugins, AnAbsurdWorkspaceIsThePluginsFault) {
  const auto outcome = train(1, "workspace");
  EXPECT_EQ(outcome.exit_code, 71) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("optimizer plugin Ends 1.2 ("), HasSubstr("asks for a workspace of ")));
}

TEST(HostilePlugins, ParametersThatAreNotFiniteAreToldAtASaveByName) {
  const auto last = train(2, "nan", 3, "saved");  // in the last step: no loss comes after it
  EXPECT_EQ(last.exit_code, 0) << last.output;
  EXPECT_THAT(last.output, HasSubstr("checkpoint saved/global_step3: 1 parameter is not finite: 'first.weight' (1 element)"));
  EXPECT_THAT(last.output, HasSubstr("model saved/model.safetensors: 1 parameter is not finite: 'first.weight' (1 element)"));
  EXPECT_THAT(last.output, HasSubstr("receipt: 1 parameter is not finite"));
  const auto sound = train(2, "not", 3, "saved");
  EXPECT_EQ(sound.exit_code, 0) << sound.output;
  EXPECT_THAT(sound.output, Not(HasSubstr("not finite")));
}

TEST(HostilePlugins, ALossThatIsNotFiniteSaysThatTheParametersWereSoBefore) {
  const auto outcome = train(1, "nan");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("before this forward 4 parameters are not finite: 'first.bias' (1 element), 'first.weight'"),
                    HasSubstr("optimizer plugin Ends 1.2"), Not(HasSubstr("no parameter was changed"))));
}

}  // namespace
