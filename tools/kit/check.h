// One check of a plugin, and its result.
//
//   const Check kCheck{"gradients-untouched", "the gradient is only read", "copy it before you change it", 30, run};
//   void run(Subject& subject) { ...; throw CheckFailure("it wrote to element 3", "step 2, tensor 'odd'"); }
//
// A check runs in its own process (child.h), so that a crash, a hang or anything left behind does
// not affect the other checks.
#pragma once

#include <gannet/value.h>

#include <string>
#include <vector>

#include "plugin/plugin.h"

namespace gannet::kit {

// The input of a check: the plugin, opened in this process, and the params of its objects.
struct Subject {
  const plugin::Plugin* plugin = nullptr;
  std::vector<const plugin::Plugin*> of_file;  // this plugin, and the others in its file
  Dict params;
  uint32_t least_minor = 0;  // the oldest ABI minor version among the hosts that can open the file
  std::string opening;       // what opening the file has changed in this process; "": nothing
  // Another plugin of the same kind, known to be right (--reference); null: none.
  const plugin::Plugin* reference = nullptr;
  Dict reference_params;
  double tolerance = 1e-6;  // largest relative difference between the two results, in the 2-norm

  plugin::ParamSet parsed() const { return plugin::parse_params(*plugin, params, {}); }
};

// Thrown by a check. `to_do` and `expected` replace those of the Check unless they are "".
struct CheckFailure {
  std::string found, where = "", expected = "", to_do = "";
};
struct SkippedCheck {
  std::string reason;
};

struct Check {
  const char* name;      // "halves-equal-whole", also used by exclusions
  const char* expected;  // what a plugin that passes does
  const char* to_do;     // what the plugin's author should do if it fails
  int seconds;           // time limit
  void (*run)(Subject&);
};

// The checks for a kind, in order: first those common to all kinds. The check that watches the
// process is last, so that a bad access is reported by the check made for it.
std::vector<Check> checks_of(gannet_kind kind);

std::vector<Check> common_checks();
Check process_check();
std::vector<Check> optimizer_checks();
std::vector<Check> scheduler_checks();
std::vector<Check> offload_checks();
std::vector<Check> comm_checks();
std::vector<Check> accelerator_checks();

// kSame: failed in the same way, in the same call, as an earlier check.
enum class Verdict { kPassed, kFailed, kSame, kSkipped, kExcluded };

struct CheckResult {
  std::string check = "";
  Verdict verdict = Verdict::kPassed;
  double seconds = 0;
  std::string expected = "", found = "", where = "", to_do = "";  // for a failure
  std::string reason = "";                                        // for kSame, kSkipped, kExcluded
};

}  // namespace gannet::kit
