#include "hparam_sources.h"

#include <gannet/error.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "common/json.h"
#include "common/nearest.h"
#include "common/yaml.h"

namespace gannet::trials {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "deepspeed_config";
constexpr const char* kOverwrite = "overwrite_deepspeed_args";
constexpr const char* kCommandLine = "command line";

// Whether a path is inside the DeepSpeed config, whose keys are later checked against the config's
// own table.
bool is_of_config(const std::string& path) {
  const std::string root = path.substr(0, path.find('.'));
  return root == kConfig || root == kOverwrite;
}

struct HparamFile {
  Dict values;
  common::YamlLines lines;
};

HparamFile read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || fs::is_directory(path))
    throw Error(ErrorCode::kNotFound, "cannot open the file of hyperparameters " + path, "name a .json or .yaml file");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  HparamFile file;
  Value value;
  if (path.ends_with(".json")) {
    value = common::parse_json(text, path);
    try {  // nearly all JSON is valid YAML; this pass gives the line numbers
      common::parse_yaml(text, path, &file.lines);
    } catch (const Error&) {
      file.lines.clear();
    }
  } else {
    value = common::parse_yaml(text, path, &file.lines);
  }
  if (!value.is_dict())
    throw Error(ErrorCode::kArgument, path + " holds " + value.type_name() + ", not hyperparameters by name",
                "write NAME: VALUE");
  file.values = value.as_dict();
  if (const Value* of_experiment = file.values.find("hyperparameters"); of_experiment && of_experiment->is_dict())
    throw Error(ErrorCode::kArgument,
                path + " is the file of an experiment: its hyperparameters are in a section 'hyperparameters'",
                "give that section as a file of its own; --max_length, --validation_period, --checkpoint_period and --metric say "
                "what the other sections do");
  return file;
}

class HparamCollector {
 public:
  Dict values;
  std::map<std::string, std::string> origins;
  std::vector<std::string> mistakes;
  bool is_closed = false;  // whether names that are not in `values` yet are refused

  // Merges a dictionary over the current values.
  void merge(const Dict& given, const std::string& where, const common::YamlLines& lines) {
    merge_into(values, given, "", where, lines);
  }

  // Sets one value by its dotted path. `text` is the value as written; a string hyperparameter is
  // set to it unparsed.
  void assign(const std::string& path, Value value, const std::string& text) {
    Dict* at = &values;
    std::string walked;
    for (size_t begin = 0;;) {
      const size_t dot = path.find('.', begin);
      const std::string key = path.substr(begin, dot == std::string::npos ? dot : dot - begin);
      walked += (walked.empty() ? "" : ".") + key;
      Value* known = at->find(key);
      if (!known && is_closed && !is_of_config(path)) return add_unknown(kCommandLine, walked, *at);
      if (dot == std::string::npos) {
        if (known && known->is_string() && !is_of_config(path)) value = text;
        if (known) return replace(*known, value, path, kCommandLine);
        (*at)[key] = std::move(value);
        origins[path] = kCommandLine;
        return;
      }
      if (known && !known->is_dict() && !known->is_null()) {
        mistakes.push_back(std::string(kCommandLine) + ": hyperparameter '" + walked + "' is " + known->type_name() +
                           ", so that there is no '" + path + "'" +
                           (walked == kConfig ? std::string("; ") + kOverwrite + " changes a config that is a path" : ""));
        return;
      }
      if (!known || known->is_null()) (*at)[key] = Dict();
      at = &at->find(key)->as_dict();
      begin = dot + 1;
    }
  }

 private:
  void add_unknown(const std::string& where, const std::string& path, const Dict& known) {
    std::vector<std::string> names;
    const std::string prefix = path.substr(0, path.rfind('.') == std::string::npos ? 0 : path.rfind('.') + 1);
    for (const auto& [key, value] : known.entries()) names.push_back(prefix + key);
    mistakes.push_back(where + ": unknown hyperparameter '" + path + "'" + common::did_you_mean(path, names));
  }

  void replace(Value& known, Value value, const std::string& path, const std::string& where) {
    const bool fits = !is_closed || known.is_null() || is_of_config(path) || (known.is_bool() && value.is_bool()) ||
                      (known.is_int() && value.is_int()) || (known.is_number() && !known.is_int() && value.is_number()) ||
                      (known.is_string() && value.is_string()) || (known.is_list() && value.is_list()) ||
                      (known.is_dict() && value.is_dict());
    if (!fits) {
      mistakes.push_back(where + ": hyperparameter '" + path + "' is " + value.to_json().substr(0, 80) + ", " +
                         value.type_name() + "; " + origin_of(path) + " has " + known.type_name() + ", " +
                         known.to_json().substr(0, 80));
      return;
    }
    if (known.is_dict() && value.is_dict() && path != kConfig)
      return merge_into(known.as_dict(), value.as_dict(), path + ".", where, {});
    known = known.is_number() && !known.is_int() && value.is_int() && is_closed ? Value(value.as_number()) : std::move(value);
    origins[path] = where;
  }

  void merge_into(Dict& into, const Dict& given, const std::string& prefix, const std::string& where,
                  const common::YamlLines& lines) {
    for (const auto& [key, value] : given.entries()) {
      const std::string path = prefix + key;
      const auto line = lines.find(path);
      const std::string here = line == lines.end() ? where : where + ":" + std::to_string(line->second);
      Value* known = into.find(key);
      if (!known) {
        if (is_closed && !is_of_config(path)) {
          add_unknown(here, path, into);
          continue;
        }
        into[key] = value;
        note(value, path, where, lines);
      } else if (known->is_dict() && value.is_dict() && path != kConfig) {
        merge_into(known->as_dict(), value.as_dict(), path + ".", where, lines);
      } else {
        replace(*known, value, path, here);
      }
    }
  }

  void note(const Value& value, const std::string& path, const std::string& where, const common::YamlLines& lines) {
    const auto line = lines.find(path);
    origins[path] = line == lines.end() ? where : where + ":" + std::to_string(line->second);
    if (value.is_dict())
      for (const auto& [key, inner] : value.as_dict().entries()) note(inner, path + "." + key, where, lines);
  }

  std::string origin_of(const std::string& path) const {
    const auto known = origins.find(path);
    return known == origins.end() ? "the trial" : known->second;
  }
};

// A relative config path is resolved against the working directory if the config exists there, and
// otherwise against the folder of the file that names it.
void resolve_config_path(Dict& values, const std::string& file) {
  Value* config = values.find(kConfig);
  if (!config || !config->is_string() || config->as_string().starts_with('{')) return;
  const fs::path beside = fs::path(file).parent_path() / config->as_string();
  if (!fs::exists(config->as_string()) && fs::exists(beside)) *config = beside.string();
}

}  // namespace

CollectedHparams collect_hparams(const HparamSources& sources) {
  HparamCollector all;
  CollectedHparams collected;
  all.merge(sources.defaults, "the trial's defaults", {});
  all.is_closed = !sources.defaults.empty();
  std::optional<std::string> config_given;  // where it was given, if not by default
  if (!sources.file.empty()) {
    HparamFile file = read(sources.file);
    resolve_config_path(file.values, sources.file);
    if (file.values.find(kConfig)) config_given = sources.file;
    all.merge(file.values, sources.file, file.lines);
    all.is_closed = true;
  }
  std::set<std::string> seen;
  for (const std::string& word : sources.assigned) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals), text = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (equals == std::string::npos || name.empty() || name.starts_with('.') || name.ends_with('.') ||
        name.find("..") != std::string::npos) {
      all.mistakes.push_back("command line: --hparam " + word + " is not NAME=VALUE");
      continue;
    }
    if (!seen.insert(name).second) {
      all.mistakes.push_back("command line: hyperparameter '" + name + "' is given twice");
      continue;
    }
    if (name == kConfig && config_given) {
      all.mistakes.push_back("deepspeed_config is given twice: in " + *config_given + " and as --hparam");
      continue;
    }
    if (name == kConfig) config_given = "--hparam";
    try {
      all.assign(name, text.empty() ? Value("") : common::parse_yaml(text, "--hparam " + name), text);
      collected.given.push_back(name);
    } catch (const Error& error) {
      all.mistakes.push_back(error.message());
    }
  }
  if (!sources.deepspeed_config.empty()) {
    if (config_given) {
      all.mistakes.push_back(
          "deepspeed_config is given twice: " + (*config_given == "--hparam" ? "as --hparam" : "in " + *config_given) +
          " and as --deepspeed_config");
    } else {
      all.values[kConfig] = sources.deepspeed_config;
      all.origins[kConfig] = kCommandLine;
      collected.given.push_back(kConfig);
    }
  }
  if (!sources.config_overrides.empty()) {
    if (Value* known = all.values.find(kOverwrite); !known || !known->is_dict()) all.values[kOverwrite] = Dict();
    all.merge(Dict{{kOverwrite, sources.config_overrides}}, kCommandLine, {});
    collected.given.push_back(kOverwrite);
  }
  if (!all.mistakes.empty()) {
    std::string lines = all.mistakes[0];
    for (size_t i = 1; i < all.mistakes.size(); ++i) lines += "\n  " + all.mistakes[i];
    throw Error(ErrorCode::kArgument, lines,
                "hyperparameters are those of " + (sources.file.empty() ? std::string("the trial's defaults") : sources.file) +
                    "; names in dictionaries are joined by dots");
  }
  collected.hparams =
      Hparams(std::move(all.values), sources.file.empty() ? "the trial's hyperparameters" : sources.file, std::move(all.origins));
  return collected;
}

}  // namespace gannet::trials
