// One check of a plugin, and what comes of it.
//
//   const Check kCheck{"gradients-untouched", "the gradient is only read", "copy it before you change it", 30, run};
//   void run(Subject& subject) { ...; throw Failed("it wrote to element 3", "step 2, tensor 'odd'"); }
//
// A check runs in a process of its own (child.h): it may crash and hang, and nothing that it leaves is seen by another one.
#pragma once

#include <gannet/value.h>

#include <string>
#include <vector>

#include "plugin/plugin.h"

namespace gannet::kit {

// What a check is given: the plugin, opened in this very process, and the params of its objects.
struct Subject {
  const plugin::Plugin* plugin = nullptr;
  std::vector<const plugin::Plugin*> of_file;  // it, and the others of its file
  Dict params;
  // Another plugin of the same kind whose results are right (--reference); null: none.
  const plugin::Plugin* reference = nullptr;
  Dict reference_params;
  double tolerance = 1e-6;  // relative, of the 2-norm, between the two

  plugin::ParamSet parsed() const { return plugin::parse_params(*plugin, params, {}); }
};

// Thrown by a check. `to_do` and `expected` replace what the table says where they are not "".
struct Failed {
  std::string found, where = "", expected = "", to_do = "";
};
struct Skipped {
  std::string reason;
};

struct Check {
  const char* name;      // "halves-equal-whole", as exclusions name it
  const char* expected;  // what holds of a plugin that passes
  const char* to_do;     // what its author should do where it does not
  int seconds;           // that it may take
  void (*run)(Subject&);
};

// In the order in which they run: those of every kind first.
std::vector<Check> checks_of(gannet_kind kind);

std::vector<Check> common_checks();
std::vector<Check> optimizer_checks();
std::vector<Check> scheduler_checks();
std::vector<Check> offload_checks();
std::vector<Check> comm_checks();
std::vector<Check> accelerator_checks();

enum class Verdict { kPassed, kFailed, kSkipped, kExcluded };

struct Result {
  std::string check = "";
  Verdict verdict = Verdict::kPassed;
  double seconds = 0;
  std::string expected = "", found = "", where = "", to_do = "";  // of a failure
  std::string reason = "";                                        // why it was skipped or excluded
};

}  // namespace gannet::kit
