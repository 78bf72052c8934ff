// The accessors of Config for programs: values by path, the ZeRO stage, all values with their
// origins, and the list of mistakes.
#include <gannet/config.h>
#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "config/document.h"
#include "config/effective.h"
#include "config/gannet_sections.h"
#include "config/keys.h"
#include "config/mistakes.h"
#include "config/resolve.h"

namespace gannet {
namespace {

// Turns "zero_optimization.stage" and "/zero_optimization/stage" into "zero_optimization/stage".
std::string slashed(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return path.starts_with('/') ? path.substr(1) : path;
}

// Looks in the key table and in the program's own sections; null if neither has the key.
const config::Key* find_key(const config::Document& document, const std::string& path) {
  const config::Key* const key = config::find_key(path);
  return key || !document.gannet_sections() ? key : document.gannet_sections()->find(path);
}

// Paths inside optimizer.params and similar sections have no rows of their own; the section's row
// allows any member.
bool is_inside_free_section(const std::string& path) {
  for (size_t end = path.rfind('/'); end != std::string::npos && end > 0; end = path.rfind('/', end - 1)) {
    const config::Key* above = config::find_key(path.substr(0, end));
    if (above) return above->type == config::Type::kFree || above->type == config::Type::kOpenSection;
  }
  return false;
}

const config::Document& document_of(const Config& config) {
  static const auto& none = *new std::shared_ptr<const config::Document>(config::Document::from_dict({}, "default"));
  return config.document() ? *config.document() : *none;
}

}  // namespace

Config Config::from_dict(const Dict& dictionary, const std::string& origin) { return Config().overwrite(dictionary, origin); }

Config& Config::fill(const std::string& path, const Value& value, const std::string& origin) {
  const auto parts = split(slashed(path), '/');
  if (parts.empty()) throw Error(ErrorCode::kArgument, "Config::fill: the path is empty", "name a key: zero_optimization.stage");
  Value filled = value;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    Dict outer;
    outer[std::string(*part)] = std::move(filled);
    filled = std::move(outer);
  }
  return overwrite(filled.as_dict(), origin);
}

ConfigEntry Config::get(const std::string& path) const {
  const std::string name = slashed(path);
  const config::Document& document = document_of(*this);
  const config::Key* key = find_key(document, name);
  if (!key && !is_inside_free_section(name))
    throw Error(ErrorCode::kConfig, formatted("Config::get: there is no key '{}'", path),
                "`gannet config keys --all` lists all keys");
  const std::string at = formatted("/{}", key ? std::string(key->path) : name);
  const Value* given = document.find(at);
  const bool is_given = given && !given->is_null();
  const bool is_own = key && document.gannet_sections() && document.gannet_sections()->find(name) == key;
  const Value value = is_given ? *given
                      : is_own ? document.gannet_sections()->default_of(*key)
                      : key    ? config::default_of(*key)
                               : Value();
  return {config::dotted(at), value, key ? config::to_string(key->type) : value.type_name(),
          is_given ? document.origin_of(at).to_string() : "default"};
}

bool Config::is_auto(const std::string& path) const { return config::is_auto(get(path).value); }

int64_t Config::stage() const { return config::settings_of(document_of(*this)).zero.stage; }

bool Config::is_offload() const {
  const config::Zero zero = config::settings_of(document_of(*this)).zero;
  return (zero.stage > 0 && zero.offload_optimizer) || (zero.stage == 3 && zero.offload_param);
}

std::vector<ConfigEntry> Config::resolve(int64_t ranks) const {
  const config::Document& document = document_of(*this);
  std::vector<ConfigEntry> entries;
  if (ranks < 1) throw Error(ErrorCode::kArgument, formatted("Config::resolve: {} ranks", ranks), "give the number of ranks");
  for (config::EffectiveValue& line : config::resolve(document, config::data_ranks(document, ranks)).effective) {
    const config::Key* key = find_key(document, line.path.substr(1));
    const char* type = key ? config::to_string(key->type) : line.value.type_name();
    entries.push_back({config::dotted(line.path), std::move(line.value), type, std::move(line.origin)});
  }
  return entries;
}

bool Config::is_valid(int64_t ranks, std::vector<std::string>* mistakes) const {
  std::vector<Error> found;
  if (ranks < 1)
    found.emplace_back(ErrorCode::kArgument, formatted("{} ranks", ranks), "give the number of ranks");
  else
    config::resolve(document_of(*this), ranks, found);
  if (mistakes)
    for (const Error& mistake : found) mistakes->push_back(mistake.what());
  return found.empty();
}

}  // namespace gannet
