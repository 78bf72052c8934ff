// Maps parameters to parameter groups, and holds the optimizer params that each group overrides.
// The groups come from the config's optimizer.param_groups or from the program's
// InitializeOptions::model_parameters, not from both.
//
//   GroupRules rules = GroupRules::read(settings, document, options);
//   rules.group_of({"h.0.bias"});                 // the first group with a pattern that matches the name; else 0, the rest
//   rules.params(2, settings.optimizer.params);   // the params for group 2's plugin
#pragma once

#include <gannet/initialize.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/document.h"
#include "config/settings.h"

namespace gannet {

class GroupRules {
 public:
  struct Rule {
    std::string name;
    std::vector<std::string> match = {};  // patterns; empty: the rest, or a list of tensors that the program passed
    Dict overrides = {};
    std::string place = "";                // where `match` is set: "ds_config.json:5:20: ..."
    std::optional<size_t> in_config = {};  // index in the config's list
  };

  GroupRules() = default;
  /// Throws Error(kConfig) if both the config and the program have groups, and Error(kArgument) if
  /// the program's groups mix lists and patterns.
  static GroupRules read(const config::Settings& settings, const config::Document& document, const EngineOptions& options);

  /// True if patterns select the groups; otherwise they are the program's lists, or one group of
  /// all parameters.
  bool are_by_name() const { return are_by_name_; }
  const std::vector<Rule>& rules() const { return rules_; }  // [groups]; empty: one group, or the program's own optimizer
  /// `names`: all names of a parameter, which has several if it is tied. Call it only if patterns
  /// select the groups.
  size_t group_of(const std::vector<std::string>& names) const;

  /// The outcome of matching a pattern against the names of all parameters.
  static constexpr double kNothing = 0, kTaken = 1, kSome = 2;  // kTaken: earlier groups have all of its matches
  using Names = std::vector<std::vector<std::string>>;          // [parameters][names]
  std::vector<double> reaches(const Names& parameters) const;   // for every pattern, in the order of the groups
  /// Throws Error(kConfig) or Error(kArgument) for the first pattern that gives its group no
  /// parameter.
  void require_reach(const std::vector<double>& reaches, const Names& parameters) const;

  const Dict* overrides(size_t group) const { return group < rules_.size() ? &rules_[group].overrides : nullptr; }
  Dict params(size_t group, const Dict& params) const;
  /// Returns a function that gives the position of a group's param, for plugin::parse_params.
  std::function<std::string(const std::string& member)> position(size_t group, const config::Document& document) const;

 private:
  std::vector<Rule> rules_;
  bool are_by_name_ = false;
};

}  // namespace gannet
