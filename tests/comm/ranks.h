// Tests on several ranks: real processes, each this very program, forked before its first test, to run one named body.
//
//   RANK_BODY(adds) { auto world = gannet::init_distributed(); ... expect(sum == 3, "the sum"); }
//   TEST(Gloo, AddsOverTwoRanks) { expect_all_succeed(run_ranks("adds", 2)); }
//
// A body fails by throwing; its text comes back in Outcome::output. Link ranks.cpp, which brings main().
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ranks {

struct Outcome {
  int status = 0;      // exit code, or 128 + signal
  std::string output;  // stdout and stderr
};

struct Options {
  std::map<std::string, std::string> environment = {};  // on top of RANK, WORLD_SIZE ...; an empty value unsets
  std::vector<uint32_t> absent = {};                    // ranks that are never started
  std::vector<uint32_t> stuck = {};                     // ranks that will not end: killed when all others have
  std::chrono::seconds limit{300};                      // then everything is killed, with status 137; machines are shared
};

// Starts the body on `count` ranks over a free port and waits for all of them. Outcomes in the order of ranks.
std::vector<Outcome> run_ranks(const std::string& body, int count, const Options& options = {});
// One process, with exactly these variables on top of the test's own environment.
Outcome run_one(const std::string& body, const std::map<std::string, std::string>& environment);

void expect_all_succeed(const std::vector<Outcome>& outcomes);

// `scripts/test.sh full`: every combination of what a test otherwise takes a covering part of.
bool is_full();

int free_port();

using Body = void (*)();
bool add_body(const char* name, Body body);

// For bodies: throws with what was seen.
template <class A, class B>
void same(const A& found, const B& expected, const std::string& what) {
  if (found == expected) return;
  std::ostringstream text;
  text << what << ": found " << found << ", expected " << expected;
  throw std::runtime_error(text.str());
}
inline void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not true: " + what);
}

}  // namespace ranks

#define RANK_BODY(name)                                                 \
  static void name##_body();                                            \
  static const bool name##_added = ranks::add_body(#name, name##_body); \
  static void name##_body()
