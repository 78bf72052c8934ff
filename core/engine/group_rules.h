// Which parameter group a parameter belongs to, and what the group overrides of the optimizer's params: from the config's
// optimizer.param_groups, or from the program's InitializeOptions::model_parameters. One of the two.
//
//   GroupRules rules = GroupRules::read(settings, document, options);
//   rules.group_of({"h.0.bias"});                 // by name: the first group of which a pattern matches, else 0, the rest
//   rules.params(2, settings.optimizer.params);   // what group 2's plugin is given
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
    std::vector<std::string> match = {};  // patterns; none: the rest, or a list of tensors that the program gave
    Dict overrides = {};
    std::string place = "";                // of the patterns, for errors: "ds_config.json:5:20: /optimizer/param_groups/0/match"
    std::optional<size_t> in_config = {};  // number in the config's list
  };

  GroupRules() = default;
  /// Error(kConfig): groups in the config and in the program; Error(kArgument): the program's groups mix lists and patterns.
  static GroupRules read(const config::Settings& settings, const config::Document& document, const EngineOptions& options);

  /// Groups are made by patterns; else the program's lists, or one group of all.
  bool are_by_name() const { return are_by_name_; }
  const std::vector<Rule>& rules() const { return rules_; }  // [groups]; empty: one group, or the program's own optimizer
  /// `names`: all of a parameter, several where it is tied. By patterns only.
  size_t group_of(const std::vector<std::string>& names) const;

  /// How far a pattern gets among all parameters' names.
  static constexpr double kNothing = 0, kTaken = 1, kSome = 2;  // kTaken: earlier groups have every parameter that it matches
  using Names = std::vector<std::vector<std::string>>;          // [parameters][names]
  std::vector<double> reaches(const Names& parameters) const;   // of every pattern, in the order of the groups
  /// Error(kConfig, kArgument) on the first pattern without parameters.
  void require_reach(const std::vector<double>& reaches, const Names& parameters) const;

  const Dict* overrides(size_t group) const { return group < rules_.size() ? &rules_[group].overrides : nullptr; }
  Dict params(size_t group, const Dict& params) const;
  /// Where a param of a group stands, for plugin::parse_params.
  std::function<std::string(const std::string& member)> position(size_t group, const config::Document& document) const;

 private:
  std::vector<Rule> rules_;
  bool are_by_name_ = false;
};

}  // namespace gannet
