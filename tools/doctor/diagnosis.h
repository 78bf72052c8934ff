// The findings of `gannet doctor`: facts in sections, the plugins one by one, and the problems. A
// value type; the command's text, Markdown and JSON are generated from it (report.h).
#pragma once

#include <gannet/value.h>

#include <chrono>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace gannet::doctor {

struct Fact {
  std::string name, text;
  Value value = {};  // for programs, if it is more precise than the text: a number of bytes, a count
};

struct Section {
  std::string title;
  std::vector<Fact> facts;
  void add(std::string name, std::string text, Value value = {}) {
    facts.push_back({std::move(name), std::move(text), std::move(value)});
  }
};

enum class PluginState {
  kUsable,
  kNotHere,  // intact, but its driver or device is not on this machine
  kBroken,
};

struct FoundPlugin {
  std::string kind, name, device, version, tier, file;
  PluginState state = PluginState::kUsable;
  std::string remark;     // why it is not usable, or a remark: "2 x NVIDIA H100"
  std::string next_step;  // "" if there is none
};

struct Finding {
  std::string what, next_step;
};

struct Diagnosis {
  std::deque<Section> sections;  // a deque: references to added sections stay valid
  std::vector<FoundPlugin> plugins;
  std::vector<Finding> problems;                             // they would stop a plain run
  std::vector<Finding> notes;                                // worth knowing
  std::vector<std::pair<std::string, std::string>> secrets;  // text -> its replacement in a report: "node7" -> "<host>"

  Section& section(std::string title) { return sections.emplace_back(Section{std::move(title), {}}); }
  void problem(std::string what, std::string next_step) { problems.push_back({std::move(what), std::move(next_step)}); }
  void note(std::string what, std::string next_step) { notes.push_back({std::move(what), std::move(next_step)}); }
};

// Each adds its sections, problems and notes (software.cpp, machine.cpp, plugins.cpp, config.cpp).
void look_at_software(Diagnosis& diagnosis);
void look_at_machine(Diagnosis& diagnosis);
void look_at_plugins(Diagnosis& diagnosis, std::chrono::seconds patience);  // patience: for each file, in a child process
void look_at_config(Diagnosis& diagnosis, const std::string& file);

}  // namespace gannet::doctor
