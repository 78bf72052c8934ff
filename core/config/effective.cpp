#include "config/effective.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "config/document.h"
#include "config/gannet_sections.h"

namespace gannet::config {

bool is_auto(const Value& value) { return value.is_string() && value.as_string() == "auto"; }

bool is_filled_in(const Key& key, const Value& value) {
  if (!is_auto(value)) return false;
  const std::vector<std::string> choices = split(key.range, '|');
  return key.type != Type::kChoice || std::find(choices.begin(), choices.end(), "auto") == choices.end();
}

const Value& value_of(const Document& document, const Key& key) {
  const Value* given = document.find(formatted("/{}", key.path));
  if (given && !given->is_null() && !is_filled_in(key, *given)) return *given;
  const OwnSections* const own = document.gannet_sections();
  return own && own->find(key.path) == &key ? own->default_of(key) : default_of(key);
}

std::string where(const Document& document, const std::string& path) {
  return formatted("{}: ", document.origin_of(path).to_string());
}

EffectiveValues::EffectiveValues(const Document& document) : document_(document) {
  for (const Key* key : all_keys())
    if (is_read(key->status) && !key->is_section()) add(*key);
  if (const OwnSections* own = document.gannet_sections())
    for (const Key* key : own->rows())
      if (!key->is_section()) add(*key);
}

void EffectiveValues::add(const Key& key) {
  const std::string path = formatted("/{}", key.path);
  const Value* given = document_.find(path);
  const bool is_set = given && !given->is_null();
  const Value& value = value_of(document_, key);
  if (key.type == Type::kFree && is_set && given->is_dict() && !given->as_dict().empty()) {
    // The key table has no rows for the members of a free section, so an "auto" there has no
    // default.
    const bool is_checked_here = path == "/optimizer/params" || path == "/scheduler/params";
    for (const auto& [name, member] : given->as_dict().entries()) {
      const std::string at = pointer(path, name);
      if (is_checked_here && is_auto(member)) unresolved_.push_back(at);
      lines_.push_back({at, member, document_.origin_of(at).to_string()});
    }
  } else if (key.type == Type::kObjects && is_set && given->is_list() && !given->as_list().empty()) {
    for (const Value& element : given->as_list()) {
      const std::string at = pointer(path, std::to_string(&element - given->as_list().data()));
      for (const auto& [name, member] : element.as_dict().entries())
        if (is_auto(member)) unresolved_.push_back(pointer(at, name));
      const auto& members = element.as_dict().entries();  // keys have a position, list elements do not
      lines_.push_back({at, element, document_.origin_of(members.empty() ? at : pointer(at, members.front().first)).to_string()});
    }
  } else if (is_set && is_filled_in(key, *given)) {
    if (path == "/optimizer/type" || path == "/scheduler/type") unresolved_.push_back(path);
    lines_.push_back({path, value, formatted("auto at {}: the default", document_.origin_of(path).to_string())});
  } else {
    lines_.push_back({path, value, is_set ? document_.origin_of(path).to_string() : "default"});
  }
}

const EffectiveValue* EffectiveValues::line_of(const std::string& path) const {
  const auto found = std::find_if(lines_.begin(), lines_.end(), [&](const EffectiveValue& line) { return line.path == path; });
  return found == lines_.end() ? nullptr : &*found;
}

bool EffectiveValues::is_unresolved(const std::string& path) const {
  return std::find(unresolved_.begin(), unresolved_.end(), path) != unresolved_.end();
}

void EffectiveValues::computed(const std::string& path, int64_t value, const std::string& how) {
  for (EffectiveValue& line : lines_)
    if (line.path == path && line.value.is_null()) line = {path, value, how};
}

std::vector<std::string> EffectiveValues::open_batch_sizes() const {
  std::vector<std::string> open;
  if (given_batch(document_).train || given_batch(document_).micro) return open;
  for (const char* path : {kTrain, kMicro})
    if (const Value* given = document_.find(path); given && is_auto(*given)) open.push_back(path);
  return open;
}

std::string EffectiveValues::defaults_for_auto() const {
  std::vector<std::string> taken;
  for (const Key* key : all_keys()) {
    const std::string path = formatted("/{}", key->path);
    const Value* given = document_.find(path);
    // Leaves out batch sizes, which are computed, and keys whose default is "auto", where "auto"
    // has a meaning of its own.
    if (!given || !is_filled_in(*key, *given) || is_auto(default_of(*key)) || path == kTrain || path == kMicro) continue;
    if (path == kAccumulation && given_batch(document_).train && given_batch(document_).micro) continue;
    const EffectiveValue* line = line_of(path);
    if (is_unresolved(path) || (path == kAccumulation && line->value.is_null())) continue;
    taken.push_back(formatted("{} = {}", dotted(path), (line ? line->value : default_of(*key)).to_json()));
  }
  return join(taken, ", ");
}

void EffectiveValues::require_no_auto() const {
  std::vector<std::string> open = open_batch_sizes();
  open.insert(open.end(), unresolved_.begin(), unresolved_.end());
  if (open.empty()) return;
  std::vector<std::string> shown;
  for (const std::string& path : open) shown.push_back(formatted("{} ({})", dotted(path), document_.origin_of(path).to_string()));
  throw Error(
      ErrorCode::kConfig,
      formatted("nothing gives a value to {}{}", open.size() == 1 ? "this \"auto\": " : "these \"auto\"s: ", join(shown, ", ")),
      "write the values: such an \"auto\" is a blank that another program fills in before the run");
}

}  // namespace gannet::config
