// Alternating rounds: every contender runs once per round, so that a slow period affects them all.
//
//   Rounds rounds = alternate({{"ours", ours}, {"torch", torch}}, 7);       // prints a line per round
//   print_figure("step_vs_torch", rounds, "ours", "torch", {{"bar", 0.143}});   // one JSON line, the ratio last
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gannet::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
};

using Rounds = std::map<std::string, std::vector<double>>;  // seconds, by contender and round

inline double seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Runs one warm-up round, which does not count, then `count` rounds.
inline Rounds alternate(const std::vector<Contender>& contenders, int count) {
  Rounds rounds;
  for (int round = 0; round <= count; ++round) {
    std::string line = round == 0 ? "warm-up " : "round " + std::to_string(round) + " ";
    for (const auto& contender : contenders) {
      const double time = seconds(contender.run);
      if (round > 0) rounds[contender.name].push_back(time);
      char text[96];
      std::snprintf(text, sizeof(text), " %s %.2f ms", contender.name.c_str(), time * 1e3);
      line += text;
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }
  return rounds;
}

// The median over the rounds of ours / theirs, with theirs multiplied by `factor` (for a bound
// derived from a measurement).
inline double print_figure(const std::string& figure, const Rounds& rounds, const std::string& ours, const std::string& theirs,
                           const std::vector<std::pair<std::string, double>>& extra = {}, double factor = 1) {
  std::vector<double> ratios, their_times;
  for (size_t i = 0; i < rounds.at(ours).size(); ++i) {
    their_times.push_back(rounds.at(theirs)[i] * factor);
    ratios.push_back(rounds.at(ours)[i] / their_times.back());
  }
  std::printf("{\"figure\": \"%s\", \"%s_ms\": %.3f, \"%s_ms\": %.3f, \"rounds\": %zu", figure.c_str(), ours.c_str(),
              median(rounds.at(ours)) * 1e3, theirs.c_str(), median(their_times) * 1e3, ratios.size());
  for (const auto& [name, value] : extra) std::printf(", \"%s\": %.4g", name.c_str(), value);
  std::printf(", \"ratio\": %.4f}\n", median(ratios));
  std::fflush(stdout);
  return median(ratios);
}

}  // namespace gannet::bench
