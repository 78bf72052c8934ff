#include "engine/group_rules.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/glob.h"
#include "base/text.h"
#include "config/document.h"
#include "config/effective.h"
#include "config/param_groups.h"
#include "plugin/named_plugins.h"

namespace gannet {
namespace {

bool matches(const std::vector<std::string>& patterns, const std::vector<std::string>& names) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
    return std::any_of(names.begin(), names.end(), [&](const auto& name) { return matches_glob(pattern, name); });
  });
}

// Converts the program's patterns to the config's form, so that both get the same checks.
List as_in_a_config(const std::vector<ParameterGroup>& groups) {
  List all;
  for (const ParameterGroup& group : groups) {
    Dict one = group.overrides;
    one["match"] = List(group.match.begin(), group.match.end());
    if (!group.name.empty()) one["name"] = group.name;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

GroupRules GroupRules::read(const config::Settings& settings, const config::Document& document, const EngineOptions& options) {
  GroupRules made;
  const List& in_config = settings.optimizer.param_groups;
  const auto& given = options.model_parameters;
  if (!in_config.empty() && (options.optimizer || !given.empty()))
    throw Error(ErrorCode::kConfig,
                formatted("{}optimizer.param_groups makes {}, and the program gave initialize {}",
                          config::where(document, "/optimizer/param_groups"),
                          in_config.size() == 1 ? "a parameter group" : formatted("{} parameter groups", in_config.size()),
                          options.optimizer ? std::string("an optimizer with groups of its own (InitializeOptions::optimizer)")
                                            : formatted("{} of its own (InitializeOptions::model_parameters)",
                                                        given.size() == 1 ? "one" : std::to_string(given.size()))),
                "keep one of the two");
  const auto has_patterns = [](const ParameterGroup& group) { return !group.match.empty(); };
  const bool are_coded = std::any_of(given.begin(), given.end(), has_patterns);
  if (are_coded)
    for (const ParameterGroup& group : given)
      if (!has_patterns(group) || !group.parameters.empty())
        throw Error(
            ErrorCode::kArgument,
            formatted("model_parameters: {} {}, and other groups have patterns",
                      group.name.empty() ? formatted("group {}", &group - given.data()) : formatted("group '{}'", group.name),
                      has_patterns(group) ? "has a pattern and a list of parameters" : "has no pattern"),
            "give every group `match` or every group `parameters`; what no pattern matches trains in the group 'default', "
            "with the config's params");
  made.are_by_name_ = are_coded || !in_config.empty();
  if (!made.are_by_name_) {
    for (size_t g = 0; g < given.size(); ++g)
      made.rules_.push_back({given[g].name.empty() ? formatted("group {}", g) : given[g].name, {}, given[g].overrides});
    return made;
  }
  const auto where = [&](const std::string& path) {
    return are_coded ? std::string("InitializeOptions::model_parameters, as ") : config::where(document, path);
  };
  made.rules_.push_back({config::kRestOfParameters});
  const auto groups = config::param_groups_of(are_coded ? as_in_a_config(given) : in_config, where);
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::string path = formatted("/optimizer/param_groups/{}/match", g);
    made.rules_.push_back({groups[g].name, groups[g].match, groups[g].overrides,
                           are_coded ? formatted("model_parameters[{}].match", g) : where(path) + config::dotted(path),
                           are_coded ? std::nullopt : std::optional(g)});
  }
  return made;
}

size_t GroupRules::group_of(const std::vector<std::string>& names) const {
  for (size_t g = 1; g < rules_.size(); ++g)
    if (matches(rules_[g].match, names)) return g;
  return 0;
}

std::vector<double> GroupRules::reaches(const Names& parameters) const {
  std::vector<double> reaches;
  for (size_t g = 0; g < rules_.size(); ++g)
    for (const std::string& pattern : rules_[g].match) {
      double& reach = reaches.emplace_back(kNothing);
      for (const auto& names : parameters)
        if (matches({pattern}, names)) reach = std::max(reach, group_of(names) == g ? kSome : kTaken);
    }
  return reaches;
}

void GroupRules::require_reach(const std::vector<double>& reaches, const Names& parameters) const {
  size_t place = 0;
  for (const Rule& rule : rules_)
    for (const std::string& pattern : rule.match) {
      const double reach = reaches[place++];
      if (reach == kSome) continue;
      const ErrorCode code = rule.in_config ? ErrorCode::kConfig : ErrorCode::kArgument;
      if (reach == kTaken)
        throw Error(code, formatted("{}: every parameter that pattern '{}' matches is in an earlier group", rule.place, pattern),
                    "the first group that matches has a parameter: put the special patterns before the general ones");
      std::vector<std::string> all, some;
      for (const auto& names : parameters) all.insert(all.end(), names.begin(), names.end());
      for (size_t i = 0; i < std::min<size_t>(all.size(), 4); ++i) some.push_back(all[i]);
      throw Error(
          code,
          formatted("{}: pattern '{}' matches no parameter of the model{}", rule.place, pattern, nearest_globs(pattern, all)),
          formatted("`*` matches any characters, `?` one, against the whole name; the model's {} names begin with {}", all.size(),
                    join(some, ", ")));
    }
}

Dict GroupRules::params(size_t group, const Dict& params) const {
  const Dict* own = overrides(group);
  return own ? config::with_overrides(params, *own) : params;
}

std::function<std::string(const std::string& member)> GroupRules::position(size_t group, const config::Document& document) const {
  if (group >= rules_.size() || rules_[group].overrides.empty()) return position_in(document, "optimizer");
  const Rule& rule = rules_[group];
  if (rule.in_config) return config::position_in_param_group(document, *rule.in_config, rule.overrides);
  return [&rule, in_config = position_in(document, "optimizer")](const std::string& member) {
    return rule.overrides.find(member) ? formatted("model_parameters, group '{}'", rule.name) : in_config(member);
  };
}

}  // namespace gannet
